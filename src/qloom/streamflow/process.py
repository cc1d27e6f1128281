"""One StreamFlow process: found, started, and asked to end when we are, so that its connectors give everything back.

StreamFlow pins its dependencies exactly, so it has a separate environment and process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from qloom.aio import TaskScope, run_to_end
from qloom.errors import InputError, JobError
from qloom.export.crate import STREAMFLOW_CRATE

VARIABLE = "QLOOM_STREAMFLOW"
FOLDER = ".venv-streamflow"
HINT = "scripts/streamflow-environment makes it, or name the executable in $QLOOM_STREAMFLOW"
LOOK_S = 0.1
GRACE_S = 60.0  # for connectors to cancel what they have submitted
_ERROR = re.compile(r"^\S+ \S+ ERROR +(.+(?:(?<=:)\n.+)?)$", re.MULTILINE)
_OWN = "FAILED Workflow execution"  # says nothing that the one before it has not said


def find_streamflow() -> Path:
    """The executable: $QLOOM_STREAMFLOW, the one of this checkout, or the one on the PATH."""
    if named := os.environ.get(VARIABLE):
        if not os.access(named, os.X_OK):
            raise InputError(f"${VARIABLE} names {named}, which is not an executable", hint=HINT)
        return Path(named)
    own = Path(__file__).parents[3] / FOLDER / "bin" / "streamflow"
    found = str(own) if own.exists() else shutil.which("streamflow")
    if found is None:
        raise InputError("StreamFlow is not installed", hint=HINT)
    return Path(found)


def step_environment(**more: str) -> dict[str, str]:
    """What StreamFlow and the steps are given: this qloom is the one that they call."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}", **more}


async def run_streamflow(
    command: list[str], folder: Path, environment: dict[str, str], look: Callable[[], None]
) -> None:
    """Run it to its end; `look` is called every `LOOK_S` seconds meanwhile, and once after."""
    log = folder / "streamflow.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    scope = TaskScope()
    try:
        ending = scope.start(process.wait())
        while not ending.done():
            await asyncio.wait([ending], timeout=LOOK_S)
            look()
    finally:
        try:
            await run_to_end(_end(process))
        finally:
            await scope.aclose()
    look()
    if process.returncode != 0:
        raise JobError(f"StreamFlow: {reason_in(log)}", hint=f"its log is {log}")


async def write_own_crate(streamflow: Path, folder: Path, name: str, environment: dict[str, str]) -> None:
    """Keep StreamFlow's own account of a run; a run is none the worse if there is none."""
    file = str((folder / "streamflow.yml").resolve())
    process = await asyncio.create_subprocess_exec(
        *(str(streamflow), "prov", name, "--file", file, "--name", STREAMFLOW_CRATE),
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await process.wait()
    finally:
        await run_to_end(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):  # a process in the background may have to ignore SIGINT
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(ending)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await process.wait()


def reason_in(log: Path) -> str:
    """The first error of StreamFlow's log that says something."""
    text = log.read_text(errors="replace")
    reasons = [" ".join(reason.split()) for reason in _ERROR.findall(text) if _OWN not in reason]
    last = [line for line in text.splitlines() if line.strip()][-1:]
    return (reasons or last or ["it said nothing"])[0]
