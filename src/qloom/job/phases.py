"""How the work of a call is done: what the journal holds is recalled, the rest reaches the strategy.

The strategy begins when the first work has to run, and not before the replayed part of the program is known to match.
This module knows neither the program nor the face that a program sees (`job.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from qloom.aio import TaskScope, gather_or_cancel, outcome_of
from qloom.answers import executed
from qloom.errors import QuantumFailed
from qloom.job.calls import CallOrder
from qloom.job.cluster import JobCluster
from qloom.job.qpu import JobQpu, QuantumBlock, SharedHold
from qloom.job.spare import SpareDropped
from qloom.journal.events import CandidateChosen, Claimed
from qloom.journal.file import Journal, Recorder
from qloom.journal.replay import Memory
from qloom.model import QuantumWork, Work
from qloom.strategies.base import Strategy

REPLAY_GRACE_S = 1.0  # how long a resumed program may take to make the calls that its journal holds


class PhaseRunner:
    """Runs the phases of one job."""

    def __init__(
        self,
        strategy: Strategy[Any],
        cluster: JobCluster,
        qpu: JobQpu,
        calls: CallOrder,
        memory: Memory,
        journal: Journal,
        recorder: Recorder,
        tasks: TaskScope,
    ) -> None:
        self._strategy = strategy
        self._cluster = cluster
        self._qpu = qpu
        self._calls = calls
        self._memory = memory
        self._clock = journal.clock
        self._results = journal.results
        self._recorder = recorder
        self._tasks = tasks
        self._beginning: asyncio.Task[None] | None = None
        self._is_ready = False  # it has begun, and all that the journal holds was asked for again
        self._hold: SharedHold[None] = SharedHold()
        self._reservation: SharedHold[None] = SharedHold()

    def new_block(self) -> QuantumBlock:
        """A quantum block; all blocks of a job share one reservation of the QPU."""
        return QuantumBlock(lambda: self._reservation.use(self._reserve()))

    async def classical(self, works: list[Work]) -> list[Any]:
        """Results in the order of the work."""
        results = self._memory.results
        missing = [work for work in works if work.id not in results] if results else works
        known: dict[str, Any] = {}
        if missing:
            unused = self._cluster.unused
            unused.want(missing)
            try:
                known = await self._run(missing)
            finally:
                unused.no_longer_want(missing)
        return [known[work.id] if work.id in known else self._recall(work.id) for work in works]

    async def _run(self, missing: list[Work]) -> dict[str, Any]:
        """Have work done that the journal does not know; what was begun as spare work is waited for."""
        if not self._is_ready:
            await self._ready()
        required: list[Work] = []
        early: list[tuple[Work, asyncio.Future[Any]]] = []
        for work in missing:
            run = self._cluster.spare.claim(work)
            if run is None:
                required.append(work)
            else:
                early.append((work, run))
                self._cluster.unused.runs(work.id)
                self._recorder.record(Claimed(work=work.id))
        if not early:
            await asyncio.sleep(0)  # a quantum call that came first opens its hold in a task of its own, a turn later
            rest = await self._strategy.classical(required)
            return {work.id: result for work, result in zip(required, rest, strict=True)}
        spare = [self._spare_result(work, run) for work, run in early]
        firm = [self._strategy.classical(required)] if required else []
        ended = await gather_or_cancel([*spare, *firm])
        results = {work.id: result for (work, _), result in zip(early, ended, strict=False)}
        return results | {work.id: result for work, result in zip(required, ended[-1] if firm else (), strict=True)}

    async def _spare_result(self, work: Work, run: asyncio.Future[Any]) -> Any:
        try:
            return await asyncio.shield(run)
        except SpareDropped:
            unused = self._cluster.unused
            unused.want([work])
            try:
                return (await self._strategy.classical([work]))[0]
            finally:
                unused.no_longer_want([work])
        except asyncio.CancelledError:
            self._cluster.spare.unclaim(work)
            raise

    async def quantum(self, work: QuantumWork, block: QuantumBlock | None) -> Any:
        """The answer of a QPU, in the hold of a block if the call was made in one."""
        if work.id in self._memory.results:
            return self._recall(work.id)
        self._qpu.require_device(work)
        unused, wish = self._cluster.unused, self._cluster.wish
        unused.want([work])
        wish.expect(work)
        try:
            if not self._is_ready:
                await self._ready()
            if block is not None:
                await block.hold()
            hold = self._strategy.quantum()
            if isinstance(hold, nullcontext):  # nothing has to be kept, so no task has to keep it
                return await self._qpu.run(work)
            async with self._hold.use(hold):
                return await self._qpu.run(work)
        finally:
            wish.forget(work)
            unused.no_longer_want([work])

    def quantum_or(
        self, instead: Work | None, work: QuantumWork, block: QuantumBlock | None
    ) -> Coroutine[Any, Any, Any]:
        """Return the answer of a QPU or, if there is a classical candidate, of whichever is chosen."""
        return self.quantum(work, block) if instead is None else self._candidate(work, instead, block)

    async def _candidate(self, work: QuantumWork, instead: Work, block: QuantumBlock | None) -> Any:
        """Both implementations give the same kind of answer; the journal says which one ran, and why."""
        for known in (work.id, instead.id):
            if known in self._memory.results:
                return self._recall(known)
        self._qpu.require_device(work)
        unused, wish = self._cluster.unused, self._cluster.wish
        unused.want([work])
        wish.expect(work, optional=True)
        try:
            await self._ready()
        finally:
            wish.forget(work)
            unused.no_longer_want([work])
        reason = self._why_classical(work, instead)
        choice = "classical" if reason else "quantum"
        self._recorder.record(CandidateChosen(work=work.id, instead=instead.id, choice=choice, reason=reason or None))
        return (await self.classical([instead]))[0] if reason else await self.quantum(work, block)

    def _why_classical(self, work: QuantumWork, instead: Work) -> str:
        try:
            device, wait_s = self._qpu.expected_wait_s(work.payload)
        except QuantumFailed as failure:
            return failure.message
        if wait_s is None:
            return f"QPU {device} is not available: it is away, or another job holds it"
        classical_s = instead.task.expected_s
        if classical_s is not None and wait_s > classical_s:
            return f"QPU {device} is busy for {wait_s:.1f} s more, {instead.task.name} takes {classical_s:.1f} s"
        return ""

    @asynccontextmanager
    async def _reserve(self) -> AsyncIterator[None]:
        async with self._hold.use(self._strategy.quantum()), self._qpu.reserve():
            yield

    def _recall(self, work: str) -> Any:
        result = self._results.load(self._memory.results[work])
        if work in self._memory.task_names:
            return result
        took_us = self._memory.durations_us.get(work)
        return executed(result, self._memory.calibrations.get(work), None if took_us is None else took_us / 1e6)

    async def _ready(self) -> None:
        """Before anything runs: the replayed part must match, and the strategy must have begun."""
        if not self._calls.is_complete and not self._memory.has_gaps:
            await self._clock.sleep(REPLAY_GRACE_S)  # branches that overlap may still be on their way
            self._calls.require_complete()
        self._calls.record_new()
        if self._beginning is None:
            self._beginning = self._tasks.start(self._strategy.begin())
        await outcome_of(self._beginning)
        self._is_ready = self._calls.is_complete

    async def end(self) -> None:
        """Have the strategy give everything back; all calls have ended."""
        self._cluster.spare.clear()
        try:
            await self._strategy.end()
        finally:
            await self._cluster.close()
