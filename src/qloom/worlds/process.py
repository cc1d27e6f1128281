"""One worker process as the driver sees it: start it, send it a task, kill it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from qloom import worker
from qloom.model import CommandResult, Task, TaskFunction
from qloom.worker import HEADER
from qloom.world import Ran

LOG_TAIL = 2000
LOCAL = (sys.executable, "-u", worker.__file__)


class WorkerDied(Exception):
    """The process ended in the middle of a task."""


class TaskRaised(Exception):
    """The task failed; the process is well."""


class WorkerProcess:
    """A process that runs one task at a time. Pipes are read by the event loop, without threads.

    `command` starts it: by default a process of this machine. All it needs is that the worker's standard input and
    output come through.
    """

    def __init__(
        self,
        name: str,
        set_up: dict[str, Any],
        log: Path | None,
        command: Sequence[str] = LOCAL,
        environment: Mapping[str, str] | None = None,
        before_exec: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.is_warm = False  # whether it was forked by a process that had imported before
        self._log = log
        self._task_log: Path | None = None  # of the task that runs
        self._loop = asyncio.get_running_loop()
        output: Any = open(log, "ab") if log is not None else subprocess.DEVNULL  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                list(command),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # so that a kill reaches what a task has started too
                bufsize=0,
                preexec_fn=before_exec,
            )
        finally:
            if log is not None:
                output.close()
        assert self._process.stdin is not None  # noqa: S101  both are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._input = self._process.stdin.fileno()
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._loop.add_reader(self._output, self._read)
        self.alive = True
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())  # nobody need await it
        self._answer = self._loop.create_future()
        self._answer.add_done_callback(self._note_ready)
        self._send(_pickle(("set_up", set_up, {}, "")))

    def _note_ready(self, answered: asyncio.Future[bytes]) -> None:
        """The first answer is that to `set_up`, or says how the process died."""
        try:
            self.is_warm = _content(answered.result()).result == "warm"
            outcome = None
        except (WorkerDied, TaskRaised) as error:
            outcome = error
        if self.ready.done():  # whoever waited for it was cancelled
            return
        if outcome is None:
            self.ready.set_result(None)
        else:
            self.ready.set_exception(outcome)

    async def run(self, task: Task, environment: dict[str, str], log: Path | None = None) -> Ran:
        """Run a task, whose output goes to `log`; if the caller is cancelled, the process is killed."""
        if not self.ready.done():
            await asyncio.shield(self.ready)
        if task.command is None:
            arguments = (function_message(task.function), task.args, dict(task.kwargs))
            return await self._ask("call", arguments, environment, log)
        command = (list(task.command), task.cwd, dict(task.env), list(task.capture))
        ran = await self._ask("command", command, environment, log)
        return Ran(CommandResult(**ran.result), ran.seconds)

    async def call(self, function: Any, *args: Any) -> Any:
        """Call a function in the process."""
        await asyncio.shield(self.ready)
        return (await self._ask("call", (function_message(function), args, {}), {})).result

    def kill(self) -> None:
        """End the process and all that it has started."""
        if self.alive:
            self._let_go(self._stop)

    def _let_go(self, stop: Callable[[], None]) -> None:
        """Stop the process, close its pipes, and wake whoever waits for an answer."""
        self.alive = False
        self._loop.remove_reader(self._output)
        self._loop.remove_writer(self._input)
        stop()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WorkerDied(self._how_it_died()))

    def _stop(self) -> None:
        """End the process itself."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    async def _ask(self, action: str, arguments: Any, environment: dict[str, str], log: Path | None = None) -> Ran:
        self._answer = self._loop.create_future()
        self._task_log = log
        try:
            self._send(_pickle((action, arguments, environment, "" if log is None else str(log))))
            answer = await self._answer
        except asyncio.CancelledError:
            self.kill()
            raise
        return _content(answer)

    def _send(self, data: bytes) -> None:
        if not self.alive:
            raise WorkerDied(self._how_it_died())
        self._unsent = memoryview(HEADER.pack(len(data)) + data)
        self._write()

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._input, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.kill()  # the pipe is broken: the process has ended
            return
        if self._unsent:
            self._loop.add_writer(self._input, self._write)
        else:
            self._loop.remove_writer(self._input)

    def _read(self) -> None:
        try:
            data = os.read(self._output, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)  # it is about to end: let it, to know how
            self.kill()
            return
        self._received += data
        if len(self._received) < HEADER.size:
            return
        size = HEADER.unpack_from(self._received)[0]
        if len(self._received) >= HEADER.size + size and self._answer is not None:
            answer = bytes(self._received[HEADER.size : HEADER.size + size])
            del self._received[: HEADER.size + size]
            if not self._answer.done():
                self._answer.set_result(answer)

    def _how_it_died(self) -> str:
        code = self._process.returncode
        how = (
            f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exited with {code}"
        )
        return f"{how}{self._last_words()}"

    def _last_words(self) -> str:
        """The end of what the task has printed, and of what the worker itself has."""
        tails = [_tail(log) for log in (self._task_log, self._log) if log is not None]
        tail = "\n".join(text for text in tails if text)
        return f"\nthe last it printed:\n{tail}" if tail else ""


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def _content(answer: bytes) -> Ran:
    """What a worker has answered; raises `TaskRaised` if its task has failed."""
    content = pickle.loads(memoryview(answer)[1:])  # noqa: S301  from the user's own worker
    if answer[:1] == b"+":
        seconds, result = content
        return Ran(result, seconds)
    what, trace = content
    raise TaskRaised(f"{what}\n{trace.rstrip()}")


def _pickle(value: Any) -> bytes:
    try:
        data = pickle.dumps(value, protocol=5)
    except Exception:
        return bytes(cloudpickle.dumps(value))
    if b"__main__" in data:  # a worker has another main module: what is of this one goes by value
        return bytes(cloudpickle.dumps(value))
    return data


_pickle_named = functools.lru_cache(maxsize=256)(_pickle)


def function_message(function: Any) -> bytes | bytearray:
    """A function as it is sent to a worker: by name, which is cached here and there, or by value, which is not.

    Those of the main module and closures have no name to be found by, and what they hold may change between calls.
    """
    named = isinstance(function, TaskFunction | types.FunctionType | types.BuiltinFunctionType)
    if not named or function.__module__ == "__main__" or "<" in function.__qualname__:
        return bytearray(cloudpickle.dumps(function))
    return _pickle_named(function)
