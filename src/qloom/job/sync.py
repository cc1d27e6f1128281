"""A job as a synchronous program sees it: the calls of `Job`, without `await`.

`SyncJob` makes requests and `CallServer` answers them with a `Job`. Between the two is a function that asks and
waits: a switch of greenlets or another thread (`greenlets.py`), or a pipe to another process
(`program_process.py`).
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

from qloom.device import DeviceTarget
from qloom.errors import InputError
from qloom.job.greenlets import AskingThread, require_sync, run_sync, runs_sync, wait
from qloom.job.guard import refuse_waits
from qloom.job.job import Job
from qloom.job.objects import QiskitObjects
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
    result = function(job, **parameters)
    if inspect.iscoroutine(result):
        result.close()
        name = getattr(function, "__name__", "the function")
        raise InputError(
            f"{name} is synchronous but returned a coroutine", hint=f"write `async def {name}(job, ...)`"
        )
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


class SyncJob:
    """One run of a synchronous program: `def program(job, ...)`."""

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

    def device_target(self, device: str | None = None) -> DeviceTarget | None:
        """What the device that circuits go to is made of; None if it compiles them itself or does not say."""
        target: DeviceTarget | None = self._ask("device_target", device)
        return target

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

    def qiskit_sampler(self, device: str | None = None, **options: Any) -> Any:
        """A Qiskit `BaseSamplerV2` whose pubs are quantum calls of this job; options: `default_shots`."""
        return self._qiskit.sampler(device, options)

    def qiskit_estimator(self, device: str | None = None, **options: Any) -> Any:
        """A Qiskit `BaseEstimatorV2` of this job; options: `default_precision` or `default_shots`."""
        return self._qiskit.estimator(device, options)

    def qiskit_backend(self, device: str | None = None, **options: Any) -> Any:
        """A Qiskit `BackendV2` of this job; options: `default_shots`."""
        return self._qiskit.backend(device, options)

    @property
    def _qiskit(self) -> QiskitObjects:
        return QiskitObjects(self.start_quantum, self.device_target, self.seed)


class CallServer:
    """Answers the requests of one `SyncJob`, and keeps the calls that it has started."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._calls: dict[int, asyncio.Task[Any]] = {}  # those whose handle was not asked for its result
        self._started = 0
        self._blocks: list[AbstractAsyncContextManager[None]] = []
        self.shared: dict[str, Shared] = {}  # by digest

    async def answer(self, request: str, *arguments: Any) -> Any:
        """Do what a request says; raises what the call raised."""
        if not self._job.in_real_time:
            return await self._answer(request, *arguments)
        self._job.program_time.stop()
        try:
            return await self._answer(request, *arguments)
        finally:
            self._job.program_time.start()

    async def _answer(self, request: str, *arguments: Any) -> Any:
        match request, *arguments:
            case "classical", tasks:
                return self._start(self._job.classical(*tasks))
            case "quantum", payload, options:
                return self._start(self._job.quantum(payload, **options))
            case "device_target", device:
                return self._job.device_target(device)
            case "expect_quantum", payload, device:
                self._job.expect_quantum(payload, device=device)
            case "run", *started:  # one request, and nobody has a handle
                return await self._calls.pop(await self._answer(*started))
            case "result", number:
                call = self._calls[number]
                try:
                    await self._job.before_result(call)
                    return await call
                finally:
                    if call.done():  # a loop of many calls leaves none behind
                        self._calls.pop(number, None)
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
            case "progress", done, of, note:
                self._job.progress(done, of, note)
            case "spend", seconds:
                await self._job.spend(seconds)
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
