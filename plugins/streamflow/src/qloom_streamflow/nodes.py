"""`qloom-nodes`: this machine as so many nodes, each with one step at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import MutableMapping, MutableSequence
from typing import Any

from streamflow.core import utils
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.scheduling import AvailableLocation
from streamflow.deployment.connector.local import LocalConnector

from qloom_streamflow.schema import LOG, schema
from qloom_streamflow.steplog import StepLog

GRACE_S = 5.0


class NodesConnector(LocalConnector):
    """Processes on this machine; they end when the workflow does."""

    def __init__(
        self,
        deployment_name: str,
        config_dir: str,
        nodes: MutableSequence[str] | None = None,
        log: str | None = None,
        transferBufferSize: int = 2**16,
    ) -> None:
        super().__init__(deployment_name, config_dir, transferBufferSize)
        self._nodes = list(nodes or ["n1"])
        self._log = StepLog(log)
        self._running: dict[str, asyncio.subprocess.Process] = {}

    @classmethod
    def get_schema(cls) -> str:
        """What `config` may hold."""
        names = {"type": "array", "items": {"type": "string"}, "description": "The names of the nodes", "minItems": 1}
        return schema("nodes", {"nodes": names, "log": LOG, "transferBufferSize": {"type": "integer"}})

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        """One location for each node."""
        return {
            name: AvailableLocation(
                name=name,
                deployment=self.deployment_name,
                service=service,
                hostname="localhost",
                local=True,
                slots=1,
            )
            for name in self._nodes
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
        """A step in a process group of its own; anything else is a helper of StreamFlow's."""
        streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        if job_name is None:
            return await super().run(
                location, command, environment, workdir, **streams, capture_output=capture_output, timeout=timeout
            )
        environment = {**(environment or {}), "QLOOM_STEP": job_name}
        line = utils.create_command(type(self).__name__, command, environment, workdir, **streams)
        self._log.write("granted", job_name, deployment=self.deployment_name, nodes=[location.name])
        code: int | None = None
        try:
            async with asyncio.timeout(timeout):
                output, code = await self._execute(job_name, line, location)
            return output, code
        finally:
            state = "done" if code == 0 else "failed" if code is not None else "cancelled"
            self._log.write("ended", job_name, state=state, reason=f"exit code {code}" if code else None)

    async def _execute(self, job_name: str, line: str, location: ExecutionLocation) -> tuple[str, int]:
        process = await asyncio.create_subprocess_exec(
            self._get_shell(),
            "-c",
            line,
            env=os.environ | location.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._running[job_name] = process
        try:
            output, _ = await process.communicate()
            return output.decode(errors="replace").strip(), process.returncode or 0
        finally:
            await _end(process)
            del self._running[job_name]

    async def undeploy(self, external: bool) -> None:
        """End what still runs: StreamFlow closes deployments before it cancels its steps."""
        await asyncio.gather(*(_end(process) for process in self._running.values()))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate a process and all that it started; kill it if it does not go."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
