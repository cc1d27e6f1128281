"""Synchronous programs in processes: one for each job, if a run has several of them.

Two synchronous programs must not interleave on one stack: callbacks of pybind11 abort the process, `odeint` computes
wrong numbers, COBYQA deadlocks. So each has a process, which sends the calls of its job to the driver and waits for
the replies (`program_main.py` is the other end). In virtual time the driver waits while a program computes: no time
passes, and the order of all calls is the same in every run.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from qloom.errors import JobError
from qloom.job.call_server import CallServer
from qloom.job.job import Job
from qloom.shared import Shared
from qloom.worker import HEADER, die_with_parent

END_S = 5.0  # how long a cancelled program may take to clean up


@dataclass(frozen=True)
class ProgramCall:
    """What the process runs: a function and its parameters, and where its modules are."""

    function: Callable[..., Any]
    parameters: dict[str, Any]
    files: dict[str, str]  # module name -> file of the program
    name: str
    seed: int
    output_dir: Path | None
    virtual: bool
    path: list[str] = field(default_factory=lambda: [entry or os.getcwd() for entry in sys.path])


async def run_in_process(function: Callable[..., Any], job: Job, files: dict[str, str], **parameters: Any) -> Any:
    """Call a synchronous program in a process, with a job whose calls are answered here."""
    virtual = not job.in_real_time
    call = ProgramCall(function, parameters, files, job.name, job.seed, job.output_dir, virtual)
    process = _ProgramProcess(call, job)
    job.program_time.start()
    try:
        return await process.run()
    finally:
        process.close()


class _ProgramProcess:
    """The process, and the calls of its job that are out."""

    def __init__(self, call: ProgramCall, job: Job) -> None:
        self._job = job
        self._server = CallServer(job)
        self._pipe = _Pipe(waits=call.virtual)
        self._process = subprocess.Popen(
            # -P: others may write to the working directory, which is on the path only if it is on the driver's
            [sys.executable, "-P", "-m", "qloom.job.program_main", *map(str, self._pipe.theirs)],
            stdin=subprocess.DEVNULL,
            pass_fds=self._pipe.theirs,
            start_new_session=True,  # Ctrl-C is the driver's to handle
            preexec_fn=die_with_parent,
        )
        self._pipe.started()
        self._pipe.send((call.path, call.files, dumps(call)))  # modules are found before the call is read

    async def run(self) -> Any:
        """Answer calls until the program ends; returns its result, or raises its error."""
        try:
            while True:
                request, *arguments = await self._receive()
                if request == "ended":
                    result, error = arguments
                    if error is not None:
                        raise error
                    return result
                self._pipe.send(await self._reply(request, *arguments))
        except asyncio.CancelledError:
            await self._unwind()
            raise

    async def _reply(self, request: str, *arguments: Any) -> tuple[Any, BaseException | None]:
        try:
            return await self._server.answer(request, *arguments), None
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                self._pipe.send((None, error))
                raise
            return None, error  # the program itself has cancelled that call
        except Exception as error:
            return None, error

    async def _receive(self) -> tuple[Any, ...]:
        message = await self._pipe.receive()
        if message is None:
            code = self._process.wait()
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
            raise JobError(f"the process of the program {how}", job=self._job.name, hint="see what it printed")
        request: tuple[Any, ...] = loads(message, self._server.shared)
        return request

    async def _unwind(self) -> None:
        """Let a cancelled program clean up; it gets no further calls through."""
        try:
            async with asyncio.timeout(END_S):
                while (await self._receive())[0] != "ended":
                    self._pipe.send((None, asyncio.CancelledError()))
        except (TimeoutError, JobError):
            pass  # it is killed

    def close(self) -> None:
        """End the process and what it has started, if it is still there."""
        self._pipe.close()
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it comes without types
    """Functions of the main module and closures go by value, shared data by its digest."""

    def persistent_id(self, value: Any) -> str | None:
        return value.digest if isinstance(value, Shared) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: dict[str, Shared]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, digest: str) -> Shared:
        return self._shared.setdefault(digest, Shared(None, digest, None))


def dumps(value: Any) -> bytes:
    """Pickle a value for the other process."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def loads(data: bytes, shared: dict[str, Shared]) -> Any:
    """Read a value of the user's other process; `shared` has what this one knows by digest."""
    return _Unpickler(data, shared).load()


class _Pipe:
    """Messages to and from a process: eight bytes of length and a pickle. Both ends belong to the same user.

    With `waits`, `receive` blocks the event loop until the next message is there.
    """

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._input, write = os.pipe()
        read, self._output = os.pipe()
        self.theirs = (read, write)
        self._received = bytearray()

    def started(self) -> None:
        """The process has its ends."""
        for end in self.theirs:
            os.close(end)
        os.set_blocking(self._input, self._waits)

    def send(self, message: Any) -> None:
        """Send a message whole. The process always reads: it waits for nothing else."""
        data = dumps(message)
        unsent = memoryview(HEADER.pack(len(data)) + data)
        try:
            while unsent:
                unsent = unsent[os.write(self._output, unsent) :]
        except BrokenPipeError:
            pass  # it has ended: the next `receive` says so

    async def receive(self) -> bytes | None:
        """The next message; None if the process has ended."""
        while (message := self._next()) is None:
            data = await self._read()
            if not data:
                return None
            self._received += data
        return message

    def _next(self) -> bytes | None:
        if len(self._received) < HEADER.size:
            return None
        end = HEADER.size + HEADER.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        message = bytes(self._received[HEADER.size : end])
        del self._received[:end]
        return message

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._input, 1 << 20)
            except BlockingIOError:
                readable = loop.create_future()
                loop.add_reader(self._input, readable.set_result, None)
                try:
                    await readable
                finally:
                    loop.remove_reader(self._input)

    def close(self) -> None:
        """Close this side of the pipes."""
        os.close(self._input)
        os.close(self._output)
