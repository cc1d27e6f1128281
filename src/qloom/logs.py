"""Where the output of each task goes, and programs that are run with their output going there."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from qloom.aio import TaskScope, run_to_end
from qloom.errors import TaskFailed
from qloom.model import CommandResult, Payload, Task, Work, work_of
from qloom.output import OutputFile
from qloom.worker import die_with_parent

LONGEST_NAME = 60
TAIL_BYTES = 4000
STOP_GRACE_S, LINGER_S = 5.0, 1.0


def task_log(logs: Path | None, work: Work) -> Path | None:
    """Where the output of a task goes: a file named by its job, its phase and its place there."""
    if logs is None:
        return None
    name = _as_file_name(work.task.name)
    known = (
        f"{work.phase:03d}-{name}-{work.place}" if work.phase else f"spare-{name}-{work.key[:8]}.{work.occurrence}"
    )
    return logs / work.job / f"{known}.log"


def command_log(logs: Path | None, payload: Payload) -> Path | None:
    """Where the output of a quantum command goes."""
    if logs is None:
        return None
    work = work_of(payload)
    return logs / work.job / f"quantum-{_as_file_name(payload.name)}-{work.key[:8]}.{work.occurrence}.log"


def _as_file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text)[:LONGEST_NAME]


def exited(result: CommandResult) -> str:
    """How a command failed, and what it said last: after a colon if that is one line, else below."""
    said = (result.stderr or result.stdout).strip()
    between = "\n" if "\n" in said else ": "
    return f"exited with {result.exit_code}" + (f"{between}{said}" if said else "")


def captured(task: Task) -> dict[str, bytes]:
    """The content of the files that a command was asked to hand over."""
    files = {name: Path(task.cwd or ".", name) for name in task.capture}
    return {name: path.read_bytes() for name, path in files.items() if path.exists()}


async def run_logged(
    words: Sequence[str], environment: Mapping[str, str], cwd: str | None, log: Path | None
) -> tuple[int, str, str]:
    """Run a launcher; returns how it ended and the end of what it printed, all of which goes to `log`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),  # then a launcher ends its ranks
        )
    except OSError as error:
        raise TaskFailed(f"cannot run {words[0]}: {error.strerror}") from None
    output = None if log is None else OutputFile(str(log))
    printed, errors = bytearray(), bytearray()
    scope = TaskScope()
    reading = [
        scope.start(_copy(process.stdout, printed, output)),
        scope.start(_copy(process.stderr, errors, output)),
    ]
    try:
        exit_code = await process.wait()
        await asyncio.wait(reading, timeout=LINGER_S)  # a process that outlives its launcher may hold them open
    except asyncio.CancelledError:
        await run_to_end(_end(process))
        raise
    finally:
        await run_to_end(scope.aclose())
        if output is not None:
            output.close()
    return exit_code, printed.decode(errors="replace"), errors.decode(errors="replace")


async def _copy(stream: asyncio.StreamReader | None, tail: bytearray, output: OutputFile | None) -> None:
    while stream is not None and (data := await stream.read(1 << 16)):
        if output is not None:
            output.write(data)
        tail += data
        del tail[:-TAIL_BYTES]


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM first: srun then ends its step on all nodes, which it cannot do any more after SIGKILL."""
    for number, patience_s in ((signal.SIGTERM, STOP_GRACE_S), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            async with asyncio.timeout(patience_s):
                await process.wait()
            return
        except TimeoutError:
            continue
        except ProcessLookupError:
            await process.wait()
            return
