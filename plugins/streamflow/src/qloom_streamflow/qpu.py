"""`qpu`: the devices of a qloom broker as a location. A step's payload is sent; no command is run."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import MutableMapping, MutableSequence
from typing import Any

from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation
from streamflow.deployment.connector.local import LocalConnector
from streamflow.log_handler import logger

from qloom_streamflow.broker import WAIT_S, Broker
from qloom_streamflow.payload import QuantumStep, answer, read_step
from qloom_streamflow.schema import BROKER, DEVICE, LOG, schema
from qloom_streamflow.steplog import StepLog

FINAL = ("done", "failed", "cancelled")
LOOK_S = 0.5  # how often a queued task's place is looked up


class QpuConnector(LocalConnector):
    """Payloads are read from, and answers written to, files that this machine sees."""

    def __init__(
        self,
        deployment_name: str,
        config_dir: str,
        broker: str | None = None,
        device: str | None = None,
        project: str | None = None,
        maxConcurrentTasks: int = 1000,
        log: str | None = None,
        transferBufferSize: int = 2**16,
    ) -> None:
        super().__init__(deployment_name, config_dir, transferBufferSize)
        self._broker = Broker(broker)
        self._defaults = {"device": device, "project": project}
        self._slots = maxConcurrentTasks
        self._log = StepLog(log)
        self._open: dict[str, asyncio.Task[dict[str, Any]]] = {}  # by step: its submission, until the task is over
        self._closing = False

    @classmethod
    def get_schema(cls) -> str:
        """What `config` may hold."""
        properties = {
            "broker": BROKER,
            "device": DEVICE,
            "project": {"type": "string", "description": "The project to charge"},
            "maxConcurrentTasks": {"type": "integer", "minimum": 1, "default": 1000},
            "log": LOG,
            "transferBufferSize": {"type": "integer"},
        }
        return schema("qpu", properties)

    async def deploy(self, external: bool) -> None:
        """See that the broker is there before anything is sent."""
        await super().deploy(external)
        probe = Broker(self._broker.address, retry_s=2.0)
        try:
            names = [device["name"] for device in await probe.devices()]
        finally:
            await probe.close()
        if self._defaults["device"] not in (None, *names):
            raise WorkflowExecutionException(
                f"{self.deployment_name}: the broker has no QPU {self._defaults['device']!r}, but {', '.join(names)}"
            )

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        """One location, with room for as many tasks as the broker may queue."""
        name = self._defaults["device"] or "qpu"
        return {
            name: AvailableLocation(
                name=name,
                deployment=self.deployment_name,
                service=service,
                hostname="localhost",
                local=True,
                slots=self._slots,
            )
        }

    async def run(
        self,
        location: ExecutionLocation,
        command: MutableSequence[str],
        environment: MutableMapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: int | str | None = None,
        stdout: int | str = asyncio.subprocess.STDOUT,
        stderr: int | str = asyncio.subprocess.STDOUT,
        capture_output: bool = False,
        timeout: int | None = None,
        job_name: str | None = None,
    ) -> tuple[str, int] | None:
        """A step's payload goes to the broker; anything else is a helper of StreamFlow's."""
        streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        if job_name is None:
            return await super().run(
                location, command, environment, workdir, **streams, capture_output=capture_output, timeout=timeout
            )
        step = read_step(job_name, list(command), workdir)
        if step.asked is not None:
            step.asked.touch()
        if step.empty:
            step.result.write_text(answer({"sample": {}, "energy": 0.0}))
            return "", 0
        async with asyncio.timeout(timeout):
            view = await self._see_through(job_name, step)
        if view["state"] != "done":
            why = f": {view['reason']}" if view.get("reason") else ""
            raise WorkflowExecutionException(
                f"Step {job_name}: quantum task {view['id']} on QPU {view['device']} is {view['state']}{why}"
            )
        return "", 0

    async def _see_through(self, job_name: str, step: QuantumStep) -> dict[str, Any]:
        """From the submission to the end; if the step is cancelled, so is the task."""
        if self._closing:
            raise asyncio.CancelledError
        defaults = {name: value for name, value in self._defaults.items() if value is not None}
        form = {**defaults, **step.form, "name": job_name[:200], "key": uuid.uuid4().hex}
        submission = self._open[job_name] = asyncio.ensure_future(self._broker.submit(form))
        view: dict[str, Any] = {"state": "cancelled"}  # unless it comes to an end
        try:
            view = await asyncio.shield(submission)
            self._log.write("queued", job_name, device=view["device"], task=view["id"])
            view = await self._wait(job_name, await self._broker.status(view["id"]))
            if view["state"] == "done":
                step.result.write_text(answer(view["result"]))
            return view
        finally:
            if view["state"] not in FINAL or "id" not in view:
                await asyncio.shield(self._cancel(job_name))
                view = {"state": "cancelled"}
            self._open.pop(job_name, None)
            told: dict[str, Any] = {"state": view["state"], "reason": view.get("reason") or None}
            if view["state"] == "done":
                told |= {"payload": str(step.payload), "result": str(step.result)}
            self._log.write("ended", job_name, **told)

    async def _wait(self, job_name: str, view: dict[str, Any]) -> dict[str, Any]:
        told: tuple[Any, ...] = ()
        if view["state"] in FINAL:  # it went by at once; the result comes with the answer to this
            view = await self._broker.result(view["id"], WAIT_S)
        while view["state"] not in FINAL:
            place = (view["state"], view.get("position"))
            if place != told:
                where = f", {place[1]} before it" if place[0] == "queued" and place[1] is not None else ""
                logger.info(f"Step {job_name}: quantum task {view['id']} on {view['device']} is {place[0]}{where}")
                if place[0] not in ("queued", *told[:1]):
                    self._log.write("executing", job_name, device=view["device"])
                told = place
            waiting = view["state"] == "queued"
            ended = await self._broker.result(view["id"], LOOK_S if waiting else WAIT_S)
            view = ended if ended["state"] in FINAL else await self._broker.status(view["id"])
        if told[:1] in ((), ("queued",)):
            self._log.write("executing", job_name, device=view["device"])  # it went by between two looks
        return view

    async def _cancel(self, job_name: str) -> None:
        """A submission is seen through first, so that its task is known."""
        submission = self._open.get(job_name)
        if submission is None:
            return
        await asyncio.wait([submission])
        with contextlib.suppress(WorkflowExecutionException):
            task = submission.result()["id"]
            logger.info(f"Cancelling quantum task {task}")
            await self._broker.cancel(task)

    async def undeploy(self, external: bool) -> None:
        """Cancel what is left: StreamFlow closes deployments before it cancels its steps."""
        self._closing = True
        for job_name in list(self._open):
            await self._cancel(job_name)
            self._open.pop(job_name, None)
        await self._broker.close()
