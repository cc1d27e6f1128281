"""A child process that answers frames: `{"n", "method", "params"}` in, `{"n", "answer" | "error"}` out.

A payload goes behind the line, and so does an answer that is only passed on (`lend.py`). Every call has a time
limit. A child that hangs, dies or talks nonsense is killed and all its calls end with `ChildDied`; the next call
starts a new one. Nothing is ever unpickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qloom.aio import TaskScope, finish, run_to_end
from qloom.devices.lend import LONGEST, attached_bytes, frame
from qloom.errors import CannotTell, InputError, PayloadError, QloomError, QuantumFailed, UnknownTask, Unreachable
from qloom.model import JsonText

ERRORS: dict[str, type[QloomError]] = {
    kind.__name__: kind for kind in (CannotTell, InputError, PayloadError, QuantumFailed, UnknownTask, Unreachable)
}
ENDING_S = 1.0  # from the end of a process's output to its own end
LOOK_S = 0.1  # between two looks at a process that was killed


class ChildDied(QuantumFailed):
    """The child process ended, hung or could not be started; `why` says which."""


class OutOfCpuTime(ChildDied):
    """The child used more CPU time than the call was given: the fault of what it was asked."""


class Child:
    """One process at a time; `opening` is the call that a new one must answer first."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        what: str = "the device's process",
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        opening: tuple[str, dict[str, Any]] | None = None,
        start_s: float = 60.0,
    ) -> None:
        self._argv = tuple(argv)
        self._what = what
        self._environment = environment
        self._log = log
        self._opening = opening
        self._start_s = start_s
        self._process: asyncio.subprocess.Process | None = None
        self._tasks = TaskScope()
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = 0
        self._starting = asyncio.Lock()
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Of the process that is there now."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the process now, rather than with the first call."""
        async with self._starting:
            if self._process is None:
                await self._start()

    async def call(
        self, method: str, params: dict[str, Any], limit_s: float, attached: str | bytes | None = None
    ) -> Any:
        """Ask; raises the error that the child names, or `ChildDied`.

        Text behind the line of the answer is returned unread: alone, or as a pair with the answer.
        """
        await self.start()
        return await self._ask(method, params, limit_s, attached)

    async def _start(self) -> None:
        log = None
        try:
            if self._log is not None:
                log = os.fdopen(os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log or asyncio.subprocess.DEVNULL,  # what vendors' libraries print may hold secrets
                env={**os.environ, **self._environment} if self._environment else None,
                limit=LONGEST,
            )
        except OSError as error:
            raise ChildDied(f"{self._what} cannot be started: {error.strerror}") from None
        finally:
            if log is not None:
                log.close()
        self.starts += 1
        self._reader = self._tasks.start(self._read(self._process))
        if self._opening is not None:
            try:
                await self._ask(*self._opening, self._start_s)
            except BaseException:
                await self.close()
                raise

    async def _ask(
        self, method: str, params: dict[str, Any], limit_s: float, attached: str | bytes | None = None
    ) -> Any:
        process = self._process
        if process is None or process.stdin is None:
            raise ChildDied(f"{self._what} ended")
        self._numbers += 1
        number = self._numbers
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        sent = frame({"n": number, "method": method, "params": params}, attached)
        try:
            async with asyncio.timeout(limit_s):
                process.stdin.write(sent)
                await process.stdin.drain()
                return await waiting
        except TimeoutError:
            await self._end(process, f"{self._what} did not answer {method} within {limit_s:g} s")
            raise ChildDied(f"{self._what} did not answer {method} within {limit_s:g} s") from None
        except OSError:  # it ended while it was being asked
            await self._end(process, f"{self._what} ended", grace_s=ENDING_S)
            return await waiting  # which raises how it ended
        finally:
            self._waiting.pop(number, None)
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # seen, even where the caller was cancelled meanwhile

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101
        why = f"{self._what} ended"
        try:
            while line := await process.stdout.readline():
                reply = json.loads(line)
                if (count := attached_bytes(reply)) is not None:
                    text = JsonText(await process.stdout.readexactly(count), "utf-8")
                    reply["answer"] = (reply["answer"], text) if "answer" in reply else text
                self._take(reply)
        except asyncio.IncompleteReadError:
            pass  # it ended
        except (ValueError, KeyError, TypeError, AttributeError):  # no JSON, not ours, or a line too long
            why = f"{self._what} answered nonsense"
        await run_to_end(self._end(process, why, grace_s=ENDING_S))

    def _take(self, reply: dict[str, Any]) -> None:
        waiting = self._waiting.get(reply["n"])
        if waiting is None or waiting.done():
            return
        error = reply.get("error")
        if error is None:
            waiting.set_result(reply.get("answer"))
        else:
            kind = ERRORS.get(error.get("type"), QuantumFailed)
            waiting.set_exception(kind(str(error.get("message")), hint=error.get("hint")))

    async def _end(self, process: asyncio.subprocess.Process, why: str, grace_s: float = 0.0) -> None:
        """Kill this process, wait for it, and end all calls that it owes an answer.

        One that is about to end gets `grace_s`: asyncio loses the status of a process that is killed while it ends.
        """
        owed: dict[int, asyncio.Future[Any]] = {}
        if self._process is process:
            self._process = None
            owed, self._waiting = self._waiting, {}
        if process.stdin is not None:
            process.stdin.close()
        try:
            try:
                if grace_s:
                    await _wait_for_exit(process, grace_s)
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
            while process.returncode is None:
                await _wait_for_exit(process, LOOK_S)
            _close_pipes(process)
        finally:
            error: ChildDied = ChildDied(why)
            if process.returncode == -signal.SIGXCPU:
                error = OutOfCpuTime(f"{self._what} used more CPU time than it may")
            elif process.returncode in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS):
                error = ChildDied(f"{why} ({signal.Signals(-process.returncode).name}: perhaps out of memory)")
            for waiting in owed.values():
                if not waiting.done():
                    waiting.set_exception(error)

    def kill(self) -> None:
        """End the process at once; its calls end with `ChildDied`."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """End the process and everything that belongs to it."""
        if self._process is not None:
            await self._end(self._process, f"{self._what} was closed")
        if self._reader is not None and self._reader is not asyncio.current_task():
            await finish(self._reader, cancel=True)  # what the process has started may hold its output open


async def _wait_for_exit(process: asyncio.subprocess.Process, within_s: float) -> None:
    """Wait for the exit of a process; `returncode` says whether it came.

    `Process.wait` returns only when the pipes are closed as well, which something that the process has started may
    hold open for ever. So nobody calls it without a limit.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await process.wait()


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Let go of the pipes to a process that has exited, whoever else holds their other ends."""
    if process.stdin is not None and process.stdin.transport.get_write_buffer_size():
        process.stdin.transport.abort()  # closing it would wait until somebody reads the rest
    process._transport.close()  # type: ignore[attr-defined]  # asyncio offers no other way
