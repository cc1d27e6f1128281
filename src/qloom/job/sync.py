"""A job as a synchronous program sees it: the calls of `Job`, without `await`.

`SyncJob` makes requests and `CallServer` answers them with a `Job`. Between the two is a function that asks and
waits: a switch of greenlets (`greenlets.py`) or a pipe to another process (`program_process.py`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

from qloom.job.greenlets import require_sync, run_sync, wait
from qloom.job.job import Job
from qloom.model import Task
from qloom.shared import Shared

Ask = Callable[..., Any]  # a request and its arguments; waits for the reply, and raises what the call raised


async def run_on_loop(function: Callable[..., Any], job: Job, **parameters: Any) -> Any:
    """Call a synchronous program on the stack of the event loop."""
    server = CallServer(job)

    def ask(*request: Any) -> Any:
        require_sync()  # before anything is started
        return wait(server.answer(*request))

    return await run_sync(function, SyncJob(ask, job.name, job.seed, job.output_dir), **parameters)


class Handle:
    """A call that was started. Ask for its result when you need it."""

    def __init__(self, ask: Ask, number: int) -> None:
        self._ask = ask
        self._number = number

    def result(self) -> Any:
        """Wait for the result of the call, or raise what it raised."""
        return self._ask("result", self._number)

    def done(self) -> bool:
        """Whether the call has ended. Time passes only while the program waits: a loop around this never ends."""
        return bool(self._ask("done", self._number))

    def cancel(self) -> None:
        """End the call; its `result` raises `asyncio.CancelledError` then."""
        self._ask("cancel", self._number)


class SyncJob:
    """One run of a synchronous program: `def program(job, ...)`."""

    def __init__(self, ask: Ask, name: str, seed: int, output_dir: Path | None) -> None:
        self._ask = ask
        self.name = name
        self.seed = seed
        self.output_dir = output_dir

    def classical(self, *tasks: Task) -> list[Any]:
        """Run tasks on the nodes of the job and wait for them; results come in the order of the tasks."""
        results: list[Any] = self._ask("take", self._ask("classical", tasks))
        return results

    def quantum(self, payload: Any, **options: Any) -> Any:
        """Send a payload to a QPU and wait for its answer; options as of `Job.quantum`."""
        return self._ask("take", self._ask("quantum", payload, options))

    def start_classical(self, *tasks: Task) -> Handle:
        """Start tasks; `.result()` waits for them."""
        return Handle(self._ask, self._ask("classical", tasks))

    def start_quantum(self, payload: Any, **options: Any) -> Handle:
        """Send a payload to a QPU; `.result()` waits for its answer."""
        return Handle(self._ask, self._ask("quantum", payload, options))

    @contextmanager
    def quantum_block(self) -> Iterator[None]:
        """Keep one hold of the QPU over all quantum tasks inside; it ends when all of them are done."""
        self._ask("enter_block")
        try:
            yield
        finally:
            self._ask("leave_block", sys.exc_info()[0] is not None)

    def speculate(self, *tasks: Task) -> None:
        """Note work that may be of use later and depends on nothing that is awaited. It may never run."""
        self._ask("speculate", tasks)

    def share(self, value: Any) -> Shared:
        """Write data once that many tasks use; pass what is returned as an argument in its place."""
        shared: Shared = self._ask("share", value)
        shared.value = value  # over a pipe comes only its name
        return shared


class CallServer:
    """Answers the requests of one `SyncJob`, and keeps the calls that it has started."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._calls: dict[int, asyncio.Task[Any]] = {}  # a handle may be asked for its result again
        self._started = 0
        self._blocks: list[AbstractAsyncContextManager[None]] = []
        self.shared: dict[str, Shared] = {}  # by digest

    async def answer(self, request: str, *arguments: Any) -> Any:
        """Do what a request says; raises what the call raised."""
        match request, *arguments:
            case "classical", tasks:
                return self._start(self._job.classical(*tasks))
            case "quantum", payload, options:
                return self._start(self._job.quantum(payload, **options))
            case "result", number:
                return await self._calls[number]
            case "take", number:  # nobody has a handle: a loop of many calls leaves none behind
                return await self._calls.pop(number)
            case "done", number:
                return self._calls[number].done()
            case "cancel", number:
                self._calls[number].cancel()
            case ["enter_block"]:
                self._blocks.append(self._job.quantum_block())
                await self._blocks[-1].__aenter__()
            case "leave_block", failed:
                await self._leave_block(failed)
            case "speculate", tasks:
                self._job.speculate(*tasks)
            case "share", value:
                shared = self._job.share(value)
                return self.shared.setdefault(shared.digest, shared)
        return None

    async def _leave_block(self, failed: bool) -> None:
        block = self._blocks.pop()
        if not failed:
            await block.__aexit__(None, None, None)
            return
        try:
            await block.__aexit__(ProgramLeft, ProgramLeft(), None)
        except ProgramLeft:
            pass  # the program raises its own error

    def _start(self, call: asyncio.Task[Any]) -> int:
        self._started += 1
        self._calls[self._started] = call
        return self._started


class ProgramLeft(Exception):
    """A program has left a block because of an error of its own."""
