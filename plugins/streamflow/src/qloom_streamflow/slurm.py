"""`qloom-slurm`: StreamFlow's own Slurm connector, without three of its faults.

A step is done only if its job is COMPLETED (a job that was cancelled while it waited is not); when the workflow ends,
for whatever reason, its jobs are cancelled; and short jobs are asked about often, long ones seldom.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping, MutableSequence
from typing import Any

from streamflow.core import utils
from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.deployment.connector.queue_manager import SlurmConnector as StockConnector
from streamflow.deployment.wrapper import get_inner_location
from streamflow.log_handler import logger

from qloom_streamflow.schema import LOG, schema
from qloom_streamflow.slurmjobs import Ended, Watch
from qloom_streamflow.steplog import StepLog


class SlurmConnector(StockConnector):
    """Submits with the stock connector's code, and watches and ends jobs with its own."""

    def __init__(
        self,
        deployment_name: str,
        config_dir: str,
        connector: Connector,
        service: str | None,
        services: MutableMapping[str, Any] | None = None,
        maxConcurrentJobs: int = 1000,
        pollingInterval: float = 5.0,
        log: str | None = None,
        transferBufferSize: int = 2**16,
    ) -> None:
        super().__init__(
            deployment_name=deployment_name,
            config_dir=config_dir,
            connector=connector,
            service=service,
            services=services,
            maxConcurrentJobs=maxConcurrentJobs,
            transferBufferSize=transferBufferSize,
        )
        self._log = StepLog(log)
        self._steps: dict[str, str] = {}  # Slurm job -> step
        self._submitting: dict[asyncio.Task[str], None] = {}
        self._login: ExecutionLocation  # known from the first step on
        self._watch = Watch(self._ask, pollingInterval, self._started)
        self._closing = False

    @classmethod
    def get_schema(cls) -> str:
        """The stock connector's services; the other options are fewer."""
        stock = json.loads(StockConnector.get_schema())
        properties = {
            "services": stock["properties"]["services"],
            "maxConcurrentJobs": {"type": "integer", "minimum": 1, "default": 1000},
            "pollingInterval": {
                "type": "number",
                "exclusiveMinimum": 0,
                "default": 5,
                "description": "The most seconds between two looks at the queue; young jobs are looked at more often",
            },
            "log": LOG,
            "transferBufferSize": {"type": "integer"},
        }
        return schema("slurm", properties, **{"$defs": stock["$defs"]})

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
        """A step becomes a batch job; anything else is a helper of StreamFlow's, for the login node."""
        streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        if job_name is None:
            return await super().run(
                location, command, environment, workdir, **streams, capture_output=capture_output, timeout=timeout
            )
        if location.service is not None and location.service not in self.services:
            known = ", ".join(self.services) or "none"
            raise WorkflowExecutionException(
                f"{self.deployment_name} has no service {location.service!r}: it has {known}"
            )
        self._login = get_inner_location(location)
        script = self.template_map.get_command(
            command=utils.create_command(
                type(self).__name__, command, {**(environment or {}), "QLOOM_STEP": job_name}, workdir
            ),
            template=location.service,
            environment=environment,
            workdir=workdir,
        )
        self._log.write("requested", job_name, deployment=self.deployment_name, service=location.service)
        ended: Ended | None = None
        try:
            job = await self._submit(job_name, script, location, workdir, streams, timeout)
            ended = await self._watch.end_of(job)
            self._steps.pop(job, None)
            return await self._outcome(job_name, ended, stdout)
        finally:
            self._log_end(job_name, ended)

    async def _submit(
        self,
        job_name: str,
        script: str,
        location: ExecutionLocation,
        workdir: str | None,
        streams: dict[str, Any],
        timeout: int | None,
    ) -> str:
        """A submission is seen through even if the step is cancelled meanwhile: the job must be known to be ended."""
        if self._closing:
            raise asyncio.CancelledError
        submission = asyncio.ensure_future(
            self._run_batch_command(
                script, location.environment, job_name, location, workdir, **streams, timeout=timeout
            )
        )
        self._submitting[submission] = None
        submission.add_done_callback(lambda done: self._submitted(done, job_name))
        job = await asyncio.shield(submission)
        logger.info(f"Step {job_name} is Slurm job {job} ({location.service or 'default'})")
        return job

    def _submitted(self, submission: asyncio.Task[str], job_name: str) -> None:
        del self._submitting[submission]
        if not submission.cancelled() and submission.exception() is None:
            self._steps[submission.result()] = job_name

    def _started(self, job: str, nodes: str) -> None:
        if job in self._steps:  # else it is being cancelled
            self._log.write("granted", self._steps[job], nodes=[nodes], slurm=job)

    async def _outcome(self, step: str, ended: Ended, stdout: int | str) -> tuple[str, int]:
        output = ""
        if stdout == asyncio.subprocess.STDOUT and ended.stdout:
            output, _ = await self._ask(["cat", ended.stdout, "2>/dev/null"])
        if not ended.ran:
            raise WorkflowExecutionException(f"Step {step} did not run to its end: {ended.why()}")
        if ended.exit_code:
            last = output.strip().rpartition("\n")[2]  # StreamFlow logs all of it
            logger.error(f"Step {step} failed: {ended.why()}" + (f": {last}" if last else ""))
        return output, ended.exit_code

    def _log_end(self, step: str, ended: Ended | None) -> None:
        if ended is None:
            self._log.write("ended", step, state="cancelled")
            return
        state = "done" if ended.state == "COMPLETED" else "failed"
        times = {"start_us": ended.start_us, "end_us": ended.end_us}
        reason = None if state == "done" else ended.why()
        self._log.write("ended", step, state=state, slurm=ended.id, nodes=[ended.nodes], reason=reason, **times)

    async def _ask(self, command: list[str]) -> tuple[str, int]:
        """Run a command where Slurm's are; the location is already the inner one."""
        result = await self.connector.run(location=self._login, command=command, capture_output=True)
        return result or ("", 0)

    async def undeploy(self, external: bool) -> None:
        """Cancel what is left; jobs that are being submitted are waited for first."""
        self._closing = True
        if self._submitting:
            await asyncio.wait(list(self._submitting))
        if self._steps:
            logger.info(f"Cancelling Slurm jobs {', '.join(self._steps)}")
            told, code = await self._ask(["scancel", *self._steps, "2>&1"])
            if code != 0:
                logger.error(f"scancel: {told}")
            self._steps.clear()
        await self._watch.close()
