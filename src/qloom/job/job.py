"""What a hybrid program calls: `classical`, `quantum`, `quantum_block`, `speculate`, `share`, `spend`.

Each call becomes work that is known by its content, and a task that the program may await now or later. How the work
is done, and what of it is recalled from the journal, is in `phases.py`.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from qloom.aio import TaskScope, report_failure, run_to_end
from qloom.device import Description
from qloom.errors import InputError, JobError
from qloom.job.calls import CallOrder
from qloom.job.cluster import JobCluster
from qloom.job.computing import ProgramTime
from qloom.job.failures import not_a_task
from qloom.job.objects import JobObjects
from qloom.job.phases import PhaseRunner
from qloom.job.qpu import JobQpu, QuantumBlock
from qloom.job.reports import ProgressReports, save_plot
from qloom.journal.content import CALL_HINT, digest, payload_key, task_key
from qloom.journal.events import CallAbandoned, Returned, Speculated
from qloom.journal.file import Journal
from qloom.journal.replay import Memory
from qloom.model import Payload, QuantumWork, Task, Work
from qloom.payloads.adapt import to_payload
from qloom.shared import Shared, share
from qloom.strategies.base import Strategy
from qloom.world import Clock

if TYPE_CHECKING:
    import numpy


class Job(JobObjects):
    """One run of a program. Calls start at once; await them now or later."""

    def __init__(
        self,
        name: str,
        strategy: Strategy[Any],
        cluster: JobCluster,
        qpu: JobQpu,
        journal: Journal,
        memory: Memory,
        *,
        seed: int,
        shared_directory: Path | None,
        output_dir: Path | None,
    ) -> None:
        self.name = name
        self.seed = seed
        self.output_dir = output_dir
        self._strategy = strategy
        self._cluster = cluster
        self._clock: Clock = journal.clock
        self._recorder = journal.recorder(name)
        self._memory = memory
        self._shared_directory = shared_directory
        self._asked: Counter[str] = Counter()
        self._speculated: Counter[str] = Counter()
        self._calls = CallOrder(self._recorder, memory)
        self._tasks = TaskScope(on_failure=lambda failure: None)  # the program, its calls and its offers
        self._open_calls: dict[asyncio.Task[Any], str] = {}
        self._phases = PhaseRunner(strategy, cluster, qpu, self._calls, memory, journal, self._recorder, self._tasks)
        self._blocks: list[QuantumBlock] = []
        self._reports = ProgressReports(name, self._clock, self._recorder.record)
        self.program_time = ProgramTime(name, cluster.world, self._recorder.record, memory)

    @cached_property
    def random(self) -> numpy.random.Generator:
        """A NumPy generator that is seeded by the job, so that a resumed program draws the same numbers."""
        from qloom.job.randomness import generator

        return generator(self.seed)

    @property
    def in_real_time(self) -> bool:
        """Whether time passes while the program computes."""
        return self._clock.real_time

    @property
    def nodes(self) -> int:
        """How many nodes the job may hold."""
        return self._strategy.nodes

    # What a program calls

    def classical(self, *tasks: Task) -> asyncio.Task[list[Any]]:
        """Run tasks on the nodes of the job, longest expected first; results come in the order of the tasks."""
        phase = self._calls.made + 1
        works = [self._work(task, phase, place) for place, task in enumerate(tasks, 1)]
        names = [task.name for task in tasks]
        return self._call("classical", names, works, functools.partial(self._phases.classical, works))

    def quantum(
        self,
        payload: Any,
        *,
        shots: int | None = None,
        expected_s: float | None = None,
        device: str | None = None,
        or_classical: Task | None = None,
    ) -> asyncio.Task[Any]:
        """Send a payload to a QPU: a QUBO, a circuit, circuits that share one task, a Pulser sequence or a `Payload`.

        `shots` None is the usual number of its kind: 100, of circuits 1024. With `or_classical`, the state of the
        device decides which of the two runs.
        """
        payload = to_payload(payload, shots=shots, seconds=expected_s, device=device)
        key = payload_key(payload)
        occurrence = self._next(key)
        seed = int(digest("seed", self.seed, key, occurrence)[:7], 16)
        work = QuantumWork(payload, self.name, key, occurrence, seed)
        instead = self._work(or_classical, self._calls.made + 1, 1) if or_classical is not None else None
        block = self._blocks[-1] if self._blocks else None
        carry_out = functools.partial(self._phases.quantum_or, instead, work, block)
        answer = self._call("quantum", [payload.name], [work], carry_out)
        if block is not None:
            block.calls.append(answer)
        return answer

    def expect_quantum(self, payload: Any = None, *, device: str | None = None) -> None:
        """Say what the next quantum call will send, or where: a strategy that holds a QPU early takes that one."""
        example = Payload("delay", None) if payload is None else to_payload(payload)
        self._cluster.wish.declare(example if device is None else replace(example, device=device))

    @asynccontextmanager
    async def quantum_block(self) -> AsyncIterator[None]:
        """Keep one hold of the QPU over all quantum tasks inside; it ends when all of them are done."""
        block = self._phases.new_block()
        self._blocks.append(block)
        try:
            yield
            await block.finish()
        finally:
            self._blocks.remove(block)
            await block.close()

    def speculate(self, *tasks: Task) -> None:
        """Note work that may be of use later and depends on nothing that is awaited. It may never run."""
        spare = []
        for task in tasks:
            key = self._checked_key(task)
            occurrence = max(self._speculated[key], self._asked[key])
            self._speculated[key] = occurrence + 1
            work = Work(task, self.name, key, occurrence)
            if work.id not in self._memory.results:
                spare.append(work)
        if spare:
            names = [work.task.name for work in spare]
            self._recorder.record(Speculated(works=[work.id for work in spare], names=names))
            if fitting := [work for work in spare if work.task.nodes == 1]:  # spare work runs on one idle node
                self._tasks.spawn(self._strategy.speculate(fitting))

    def share(self, value: Any) -> Shared:
        """Write data once that many tasks use; pass what is returned as an argument in its place."""
        return share(value, self._shared_directory)

    def describe_device(self, kind: str, device: str | None = None) -> Description | None:
        """See `JobObjects.describe_device`."""
        return self._cluster.wish.describe(kind, device)

    def open_futures(self) -> NoReturn:
        """See `JobObjects.open_futures`: futures are for programs that wait."""
        raise NotImplementedError

    def _begin_quantum(self, payload: Any, **options: Any) -> asyncio.Task[Any]:
        return self.quantum(payload, **options)

    def spend(self, seconds: float) -> asyncio.Task[None]:
        """In virtual time, let the time pass that the program itself computes for; elsewhere that is measured."""
        if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise InputError(
                f"expected seconds to spend, got {seconds!r}", job=self.name, hint="await job.spend(2.5)"
            )
        return self._tasks.spawn(self.program_time.spend(float(seconds)))

    def progress(self, done: float, of: float | None = None, note: str = "") -> None:
        """Report how far the program is, for those who watch: `job.progress(3, 10, "energy -1.1")`."""
        self._reports.report(done, of, note)

    def save_plot(self, figure: Any, name: str = "plot.png") -> Path | None:
        """Save a figure of Matplotlib among the files of the job; returns where, or None in virtual time."""
        return save_plot(self.output_dir, figure, name)

    # Calls

    async def before_result(self, call: asyncio.Task[Any]) -> None:
        """The program asks for the result of a call that it started before: count what it computed meanwhile."""
        if self.program_time.is_measured:
            self.program_time.note(call.get_name(), awaited=True)
        elif self.program_time.is_known:
            await self.program_time.pass_before(call.get_name(), awaited=True)

    def _checked_key(self, task: Task) -> str:
        if not isinstance(task, Task):
            raise not_a_task(task, self.name)
        self._cluster.world.check_task(task)
        return task_key(task)

    def _work(self, task: Task, phase: int, place: int) -> Work:
        key = self._checked_key(task)
        return Work(task, self.name, key, self._next(key), phase, place)

    def _next(self, key: str) -> int:
        self._asked[key] += 1
        return self._asked[key] - 1

    def _call(
        self, kind: str, names: list[str], works: list[Any], carry_out: Callable[[], Coroutine[Any, Any, Any]]
    ) -> asyncio.Task[Any]:
        call = self._calls.add(kind, names, works)
        if self.program_time.is_measured:
            self.program_time.note(call)
        started = self._tasks.start(self._finish_call(call, carry_out))
        started.set_name(call)
        self._open_calls[started] = call
        return started

    async def _finish_call(self, call: str, carry_out: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        own = asyncio.current_task()
        assert own is not None  # noqa: S101
        try:
            if self.program_time.is_known:
                await self.program_time.pass_before(call)
            result = await carry_out()
        except Exception:
            own.add_done_callback(asyncio.Task.exception)  # a call that nobody awaits may fail in silence
            raise
        finally:
            del self._open_calls[own]
        self._recorder.record(Returned(call=call))
        return result

    # Its run

    async def run(self, program: Coroutine[Any, Any, Any]) -> Any:
        """Run a program to its end, and release everything, whatever happens to it."""
        running = self._tasks.start(program)
        try:
            result = await running
            if isinstance(result, asyncio.Future):
                raise InputError("the program returned a call that it has not awaited", hint=CALL_HINT)
            await self.program_time.end()
            self._calls.require_complete()
            self._calls.record_new()
            for running_call, call in self._open_calls.items():
                if call and not running_call.done():
                    self._recorder.record(CallAbandoned(call=call))
        except BaseException as error:
            self._cluster.note_failure()
            if isinstance(error, InputError | JobError):
                error.job = error.job or self.name
            try:
                await run_to_end(self._end())
            except Exception as second:
                report_failure(second)
            raise
        await run_to_end(self._end())
        return result

    async def _end(self) -> None:
        await self._tasks.aclose()
        await self._phases.end()
