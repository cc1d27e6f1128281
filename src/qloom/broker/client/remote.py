"""A broker elsewhere as the jobs of a run see it: the same face as the one in process, over its HTTP client.

A broker that goes away is waited for: submissions carry a key, so that they can be sent again, and tasks and sessions
outlive its restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import math
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from qloom.aio import TaskScope, run_to_end
from qloom.answers import executed
from qloom.broker.client.client import BrokerClient, View, executed_s
from qloom.broker.client.commands import QuantumCommands
from qloom.broker.port import Session
from qloom.device import Description
from qloom.devices.check import check_payload
from qloom.devices.choosing import DeviceOffer, choose_device
from qloom.devices.schema import description_from
from qloom.errors import PayloadError, QloomError, QuantumFailed
from qloom.journal.events import QuantumEnded, QuantumQueued, QuantumStarted
from qloom.journal.file import Recorder
from qloom.model import Payload, QpuHold, QuantumWork
from qloom.payloads.adapt import program_answer, wire_body

REFRESH_S = 2.0  # how old the picture of the devices may be
KEEP_S = 30.0  # how often the broker hears that a session is still wanted
GONE = ("failed", "cancelled", "expired")
GIVE_UP_S = 5.0  # how long the end of a run waits to take something back from a broker that is away


class RemoteSession:
    """A session of the broker."""

    def __init__(self, broker: RemoteBroker, id: str, device: str, hold: QpuHold) -> None:
        self._broker = broker
        self.id = id
        self.device = device
        self.hold = hold
        self.tasks: list[asyncio.Future[None]] = []  # that are not over

    async def close(self) -> None:
        """End the hold, once its tasks are done. May be called again."""
        while self.tasks:
            await asyncio.wait(list(self.tasks))
        await self._broker.close_session(self.id)


class RemoteBroker:
    """One run's way to a broker: `await RemoteBroker.connect(address, run)`, where `run` is its name there."""

    def __init__(
        self, client: BrokerClient, run: str, devices: list[View], commands: QuantumCommands, *, resumable: bool
    ) -> None:
        self._client = client
        self._commands = commands
        self._run = run
        self._resumable = resumable
        self._devices = {view["name"]: view for view in devices}
        self._sessions: dict[str, RemoteSession] = {}  # open ones
        self._asked: dict[str, int] = {}  # job -> how many sessions it has asked for
        self._scope = TaskScope()
        self._scope.spawn(self._refresh())
        self._scope.spawn(self._keep_sessions())

    @classmethod
    async def connect(cls, address: str, run: str, *, resumable: bool, logs: Path | None = None) -> RemoteBroker:
        """Wait for the broker, and see what it has. A run that can be resumed has a name that no other run has."""
        client = BrokerClient(address, retry_s=math.inf)
        return cls(client, run, await client.devices(), QuantumCommands(address, logs), resumable=resumable)

    # Devices

    def choose(self, payload: Payload | None = None) -> str:
        """See `BrokerPort.choose`; the broker itself checks the payload once more."""
        offers = [_offer(view) for view in self._devices.values()]
        if payload is not None and payload.kind == "command":  # whatever the device takes: it talks to it itself
            return choose_device(offers, None) if payload.device is None else self._device(payload.device)["name"]
        return choose_device(offers, payload)

    def describe(self, name: str) -> Description:
        """See `BrokerPort.describe`."""
        return description_from(self._device(name))

    def takes(self, name: str, payload: Payload) -> bool:
        """See `BrokerPort.takes`."""
        if payload.kind == "command" or payload.device not in (None, name):
            return payload.device in (None, name)
        with contextlib.suppress(PayloadError):
            check_payload(self.describe(name), payload)
            return True
        return False

    def is_up(self, name: str) -> bool:
        """See `BrokerPort.is_up`."""
        return bool(self._device(name)["up"])

    def returns(self, name: str) -> bool:
        """See `BrokerPort.returns`; a broker does not say when a device that is away will be back."""
        return self.is_up(name)

    async def calibration(self, name: str) -> str | None:
        """See `BrokerPort.calibration`: as the broker last saw it."""
        known: str | None = self._devices.get(name, {}).get("calibration")
        return known

    def expected_wait_s(self, name: str, session: str | None = None) -> float | None:
        """Seconds until a new task would start; None while the device is away, or held by another session."""
        view, own = self._device(name), self._sessions.get(session or "")
        wait_s: float | None = view["expected_wait_s"]
        return wait_s if not view["held"] or (own is not None and own.device == name) else None

    def _device(self, name: str) -> View:
        try:
            return self._devices[name]
        except KeyError:
            raise PayloadError(f"no QPU is called {name!r}", hint=f"there is: {', '.join(self._devices)}") from None

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            with contextlib.suppress(QloomError):
                self._devices = {view["name"]: view for view in await self._client.devices()}

    # Sessions

    async def open_session(self, device: str, hold: QpuHold, job: str, engine_id: str | None = None) -> Session:
        """Wait in line for a session; if the caller is cancelled, the request is withdrawn."""
        asking = self._scope.start(self._ask_session(device, hold.value, job, engine_id))
        try:
            view = await self._client.wait_open((await asyncio.shield(asking))["id"])
        except asyncio.CancelledError:
            await self._take_back(self._withdraw(asking))
            raise
        if view["state"] != "open":
            raise QuantumFailed(f"the broker closed the session on QPU {device} before it was open", job=job)
        session = self._sessions[view["id"]] = RemoteSession(self, view["id"], device, hold)
        return session

    async def _ask_session(self, device: str, hold: str, job: str, engine_id: str | None) -> View:
        """A new one; a run that was killed and resumed takes over what it held."""
        label = f"{self._run}/{job}"
        while self._resumable:
            count = self._asked[label] = self._asked.get(label, 0) + 1
            key = f"{label}.{device}.{hold}.{count}"
            view = await self._client.ask_session(device, hold, label, key, engine_id)
            if view["state"] != "closed":
                return view
        return await self._client.ask_session(device, hold, label, slurm_job=engine_id)

    async def close_session(self, session: str) -> None:
        """End a session at once. May be called again."""
        if self._sessions.pop(session, None) is not None:
            await self._take_back(self._client.close_session(session))

    async def _withdraw(self, asking: asyncio.Future[View]) -> None:
        await self._client.close_session((await asking)["id"])

    async def _keep_sessions(self) -> None:
        """Keep sessions alive: the broker closes one that nobody asks for, and a job may compute for longer."""
        while True:
            await asyncio.sleep(KEEP_S)
            for session in list(self._sessions):
                with contextlib.suppress(QloomError):
                    await self._client.keep_session(session)

    # Tasks

    async def run(self, work: QuantumWork, device: str, session: Session | None, recorder: Recorder) -> Any:
        """Queue a payload and wait for its answer; if the caller is cancelled, so is the task."""
        if work.payload.kind == "command":
            return await self._commands.run(self, work, device, session, recorder)
        form = {**_form(work, self._device(device)), "device": device, "job": f"{self._run}/{work.job}"}
        tasks = self._sessions[session.id].tasks if session is not None else []
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tasks.append(over)
        if session is not None:
            form["session"] = session.id
        submitting = self._scope.start(self._submit(form, work))
        try:
            return await self._run_task(work, submitting, session, recorder)
        except asyncio.CancelledError:
            await self._take_back(self._cancel(submitting))
            raise
        except QloomError as error:
            error.job = work.job
            raise
        finally:
            over.set_result(None)
            tasks.remove(over)

    async def _submit(self, form: View, work: QuantumWork) -> View:
        """Once: a run that was killed and resumed finds what it had sent, unless that came to nothing."""
        if not self._resumable:
            return await self._client.submit(form)
        for attempt in itertools.count():
            task = await self._client.submit(form, key=f"{self._run}.{work.job}.{work.id}.{attempt}")
            if task["state"] not in GONE:
                break
        return task

    async def _run_task(
        self, work: QuantumWork, submitting: asyncio.Future[View], session: Session | None, recorder: Recorder
    ) -> Any:
        """Run one task from its submission to its end, and record each step in the journal."""
        task = await asyncio.shield(submitting)
        id, device = task["id"], task["device"]
        hold = session.hold if session is not None else QpuHold.TASK
        recorder.record(QuantumQueued(work=work.id, name=work.payload.name, device=device, hold=hold.value))
        try:
            view = await self._client.wait_begun(id)
            if view["executing_us"] is not None:
                recorder.record(QuantumStarted(work=work.id, device=device))
            view = await self._client.wait_done(id)
            result = program_answer(work.payload, view["result"])
        except QloomError as error:
            recorder.record(QuantumEnded(work=work.id, device=device, state="failed", error=str(error)))
            raise
        except asyncio.CancelledError:
            recorder.record(QuantumEnded(work=work.id, device=device, state="cancelled"))
            raise
        calibration = view.get("calibration")  # an older broker does not say
        done: Any = {"state": "done", "result": recorder.keep(result), "calibration": calibration}
        recorder.record(QuantumEnded(work=work.id, device=device, **done), durable=True)
        return executed(result, calibration, executed_s(view))

    async def _cancel(self, submitting: asyncio.Future[View]) -> None:
        await self._client.cancel((await submitting)["id"])

    async def _take_back(self, request: Coroutine[Any, Any, Any]) -> None:
        """Give back to the broker what is no longer wanted; one that is away closes unused sessions later."""

        async def tell() -> None:
            with contextlib.suppress(QloomError, TimeoutError):
                async with asyncio.timeout(GIVE_UP_S):
                    await request

        await run_to_end(tell())

    async def close(self) -> None:
        """Let go of the connection. Jobs that ended well have left nothing."""
        await self._scope.aclose()
        await self._client.close()


def _offer(view: View) -> DeviceOffer:
    description = description_from(view)
    return DeviceOffer(
        description, view["up"], view["expected_wait_s"] or 0.0, functools.partial(check_payload, description)
    )


def _form(work: QuantumWork, device: View) -> View:
    """A payload as the broker takes it."""
    payload = work.payload
    body = wire_body(payload)
    form = {"kind": payload.kind, "body": body, "shots": payload.shots, "name": payload.name}
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PayloadError(f"only JSON passes through a broker: {error}", job=work.job) from None
    form["options"] = payload.device_options
    if device["emulated"]:  # the same seed gives the same answer in any world
        form |= {"seconds": payload.seconds, "options": {**payload.device_options, "seed": work.seed}}
    return form
