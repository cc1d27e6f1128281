"""A job as a synchronous program sees it: the calls of `Job`, without `await`.

`SyncJob` makes requests, and a `CallServer` answers them with a `Job`. Between the two is a function that asks and
waits: a switch of greenlets or another thread (`greenlets.py`), or a pipe to another process (`program_process.py`).
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

from qloom.device import Description
from qloom.errors import InputError
from qloom.interop.futures import OpenFutures
from qloom.interop.transport import CURRENT_PROGRAM
from qloom.job.call_server import CallServer
from qloom.job.greenlets import AskingThread, require_sync, run_sync, runs_sync, wait
from qloom.job.guard import refuse_waits
from qloom.job.job import Job
from qloom.job.objects import JobObjects
from qloom.job.randomness import ProgramRandomness, generator
from qloom.job.reports import save_plot
from qloom.model import Task
from qloom.shared import Shared

Ask = Callable[..., Any]  # a request and its arguments; waits for the reply, and raises what the call raised


async def run_alone(function: Callable[..., Any], job: Job, **parameters: Any) -> Any:
    """Call the only synchronous program of a run: in a thread, or in virtual time on the stack of the event loop."""
    server = CallServer(job)
    randomness = ProgramRandomness(job.seed)
    try:
        if job.in_real_time:
            thread: AskingThread[Any] = AskingThread(server.answer)
            job.program_time.start()

            def main() -> Any:
                with randomness:
                    return call_program(function, _face_of(job, thread.ask), parameters)

            return await thread.run(main)

        def ask(*request: Any) -> Any:
            require_sync()  # before anything is started
            return wait(server.answer(*request))

        with refuse_waits(runs_sync, function.__globals__):
            return await run_sync(lambda: call_program(function, _face_of(job, ask), parameters), randomness)
    finally:
        randomness.close()


def _face_of(job: Job, ask: Ask) -> SyncJob:
    return SyncJob(ask, job.name, job.seed, job.output_dir)


def call_program(function: Callable[..., Any], job: SyncJob, parameters: dict[str, Any]) -> Any:
    """Call a synchronous program; refuse one that is asynchronous in disguise."""
    CURRENT_PROGRAM.set(job)
    if "joblib" in sys.modules:
        importlib.import_module("qloom.interop.joblib")
    result = function(job, **parameters)
    if inspect.iscoroutine(result):
        result.close()
        name = getattr(function, "__name__", "the function")
        raise InputError(
            f"{name} is synchronous but returned a coroutine", hint=f"write `async def {name}(job, ...)`"
        )
    job.close_objects()
    return result


class Handle:
    """A call that was started. Ask for its result when you need it."""

    def __init__(self, ask: Ask, number: int) -> None:
        self._ask = ask
        self._number = number
        self._ended: tuple[Any, BaseException | None] | None = None  # result and error: only this handle keeps them

    def result(self) -> Any:
        """Wait for the result of the call, or raise what it raised."""
        if self._ended is None:
            try:
                self._ended = self._ask("result", self._number), None
            except (Exception, asyncio.CancelledError) as error:
                self._ended = None, error
        result, raised = self._ended
        if raised is not None:
            raise raised
        return result

    def done(self) -> bool:
        """Whether the call has ended. Time passes only while the program waits: a loop around this never ends."""
        return self._ended is not None or bool(self._ask("done", self._number))

    def cancel(self) -> None:
        """End the call; its `result` raises `asyncio.CancelledError` then."""
        if self._ended is None:
            self._ask("cancel", self._number)


class NumberedCalls:
    """Classical calls of a synchronous program, by number: what its executors use."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    @cached_property
    def nodes(self) -> int:
        """How many nodes the job may hold."""
        return int(self._ask("nodes"))

    def start(self, task: Task) -> int:
        """Start a task."""
        return int(self._ask("classical", (task,)))

    def wait_any(self, calls: Sequence[int], timeout_s: float | None) -> tuple[list[int], float]:
        """Wait until one of the calls has ended; returns those that have, and how long it took by the job's clock."""
        ended: tuple[list[int], float] = self._ask("wait_any", calls, timeout_s)
        return ended

    def result(self, number: int) -> Any:
        """The result of a call, or what it raised."""
        return self._ask("result", number)

    def cancel(self, number: int) -> None:
        """End a call."""
        self._ask("cancel", number)


class SyncJob(JobObjects):
    """One run of a synchronous program: `def program(job, ...)`."""

    waits = True

    def __init__(self, ask: Ask, name: str, seed: int, output_dir: Path | None) -> None:
        self._ask = ask
        self.name = name
        self.seed = seed
        self.output_dir = output_dir

    @cached_property
    def random(self) -> numpy.random.Generator:
        """A NumPy generator that is seeded by the job, so that a resumed program draws the same numbers."""
        return generator(self.seed)

    def classical(self, *tasks: Task) -> list[Any]:
        """Run tasks on the nodes of the job and wait for them; results come in the order of the tasks."""
        results: list[Any] = self._ask("run", "classical", tasks)
        return results

    def quantum(self, payload: Any, **options: Any) -> Any:
        """Send a payload to a QPU and wait for its answer; options as of `Job.quantum`."""
        return self._ask("run", "quantum", payload, options)

    def start_classical(self, *tasks: Task) -> Handle:
        """Start tasks; `.result()` waits for them."""
        return Handle(self._ask, self._ask("classical", tasks))

    def start_quantum(self, payload: Any, **options: Any) -> Handle:
        """Send a payload to a QPU; `.result()` waits for its answer."""
        return Handle(self._ask, self._ask("quantum", payload, options))

    def open_futures(self) -> OpenFutures:
        """See `JobObjects.open_futures`."""
        return self._futures

    @cached_property
    def _futures(self) -> OpenFutures:
        return OpenFutures(NumberedCalls(self._ask))

    def _begin_quantum(self, payload: Any, **options: Any) -> Handle:
        return self.start_quantum(payload, **options)

    def describe_device(self, kind: str, device: str | None = None) -> Description | None:
        """See `JobObjects.describe_device`."""
        found: Description | None = self._ask("describe_device", kind, device)
        return found

    def expect_quantum(self, payload: Any = None, *, device: str | None = None) -> None:
        """Declare what the next quantum call will send, or where; see `Job.expect_quantum`."""
        self._ask("expect_quantum", payload, device)

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

    def spend(self, seconds: float) -> None:
        """In virtual time, let the time pass that the program itself computes for; elsewhere that is measured."""
        self._ask("spend", seconds)

    def share(self, value: Any) -> Shared:
        """Write data once that many tasks use; pass what is returned as an argument in its place."""
        shared: Shared = self._ask("share", value)
        shared.value = value  # over a pipe comes only its name
        return shared

    def progress(self, done: float, of: float | None = None, note: str = "") -> None:
        """Report how far the program is, for those who watch: `job.progress(3, 10, "energy -1.1")`."""
        self._ask("progress", done, of, note)

    def save_plot(self, figure: Any, name: str = "plot.png") -> Path | None:
        """Save a figure of Matplotlib among the files of the job; returns where, or None in virtual time."""
        return save_plot(self.output_dir, figure, name)
