"""What a hybrid program calls: `classical`, `quantum`, `quantum_block`, `speculate`, `share`.

Replay sits here, above the strategy: a call whose results the journal already holds never reaches it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from qloom.aio import finish, gather_or_cancel, let_others_go_first, report_failure, run_to_end
from qloom.errors import InputError, JobError, ProgramChanged, QuantumFailed
from qloom.job.block import SharedHold
from qloom.job.cluster import JobCluster
from qloom.job.qpu import JobQpu
from qloom.job.spare import SpareDropped
from qloom.journal.content import digest, payload_key, task_key
from qloom.journal.events import Called, CandidateChosen, Claimed, Returned, Speculated
from qloom.journal.file import Journal
from qloom.journal.replay import Memory
from qloom.model import Payload, QuantumWork, Task, Work
from qloom.payloads.adapt import qubo
from qloom.ports import Clock
from qloom.shared import Shared, share
from qloom.strategies.base import Strategy

REPLAY_GRACE_S = 1.0  # how long a resumed program may take to make the calls that its journal holds


class Job:
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
        self._qpu = qpu
        self._clock: Clock = journal.clock
        self._results = journal.results
        self._recorder = journal.recorder(name)
        self._memory = memory
        self._shared_directory = shared_directory
        self._asked: Counter[str] = Counter()
        self._speculated: Counter[str] = Counter()
        self._calls_made = 0
        self._calls_repeated: dict[str, bool] = {}
        self._new_call: str | None = None
        self._unrecorded: list[Called] = []  # new calls, until the replayed ones are known to match
        self._open_calls: dict[asyncio.Task[Any], None] = {}
        self._beginning: asyncio.Task[None] | None = None
        self._is_ready = False  # it has begun, and all that the journal holds was asked for again
        self._hold: SharedHold[None] = SharedHold(strategy.quantum)
        self._reservation: SharedHold[None] = SharedHold(self._reserve)
        self._blocks: list[_Block] = []

    @property
    def in_real_time(self) -> bool:
        """Whether time passes while the program computes."""
        return self._clock.real_time

    # What a program calls

    def classical(self, *tasks: Task) -> asyncio.Task[list[Any]]:
        """Run tasks on the nodes of the job, longest expected first; results come in the order of the tasks."""
        works = [self._work(task) for task in tasks]
        return self._call("classical", [work.task.name for work in works], works, self._classical(works))

    def quantum(
        self,
        payload: Any,
        *,
        shots: int = 100,
        expected_s: float | None = None,
        device: str | None = None,
        or_classical: Task | None = None,
    ) -> asyncio.Task[Any]:
        """Send a payload to a QPU. With `or_classical`, the state of the device decides which of the two runs."""
        if not isinstance(payload, Payload):
            payload = qubo(payload, shots=shots, seconds=expected_s, device=device)
        elif device is not None:
            payload = replace(payload, device=device)
        key = payload_key(payload)
        occurrence = self._next(key)
        seed = int(digest("seed", self.seed, key, occurrence)[:7], 16)
        work = QuantumWork(payload, self.name, key, occurrence, seed)
        instead = self._work(or_classical) if or_classical is not None else None
        block = self._blocks[-1] if self._blocks else None
        coroutine = self._quantum(work, block) if instead is None else self._candidate(work, instead, block)
        answer = self._call("quantum", [payload.name], [work], coroutine)
        if block is not None:
            block.calls.append(answer)
        return answer

    @asynccontextmanager
    async def quantum_block(self) -> AsyncIterator[None]:
        """Keep one hold of the QPU over all quantum tasks inside; it ends when all of them are done."""
        block = _Block(self._reservation)
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
                self._track(self._strategy.speculate(fitting))

    def share(self, value: Any) -> Shared:
        """Write data once that many tasks use; pass what is returned as an argument in its place."""
        return share(value, self._shared_directory)

    # Calls

    def _checked_key(self, task: Task) -> str:
        if not isinstance(task, Task):
            raise InputError(
                f"{task!r} is no task", job=self.name, hint="use @task, call(function, ...) or command(...)"
            )
        self._cluster.world.check_task(task)
        return task_key(task)

    def _work(self, task: Task) -> Work:
        key = self._checked_key(task)
        return Work(task, self.name, key, self._next(key))

    def _next(self, key: str) -> int:
        self._asked[key] += 1
        return self._asked[key] - 1

    def _call(
        self, kind: str, names: list[str], works: list[Any], coroutine: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        """Know a call by the content of its work; keep its place in the order to report a difference."""
        call = digest(kind, [work.id for work in works])
        order, self._calls_made = self._calls_made, self._calls_made + 1
        if call in self._memory.calls:
            self._calls_repeated[call] = True
        else:
            if self._new_call is None:
                self._new_call = f"{kind}({', '.join(names)})"
            self._unrecorded.append(Called(call=call, order=order, kind=kind, names=names))
            if self._matches():
                self._record_calls()
        return self._track(self._finish_call(call, coroutine))

    async def _finish_call(self, call: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        result = await coroutine
        self._recorder.record(Returned(call=call))
        return result

    def _track(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        started = asyncio.ensure_future(coroutine)
        self._open_calls[started] = None
        started.add_done_callback(self._untrack)
        return started

    def _untrack(self, ended: asyncio.Task[Any]) -> None:
        del self._open_calls[ended]
        if not ended.cancelled():
            ended.exception()  # a call that nobody awaits may fail in silence

    async def _classical(self, works: list[Work]) -> list[Any]:
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
            await let_others_go_first(1)
            rest = await self._strategy.classical(required)
            await let_others_go_first(3)
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

    async def _quantum(self, work: QuantumWork, block: _Block | None) -> Any:
        if work.id in self._memory.results:
            return self._recall(work.id)
        unused = self._cluster.unused
        unused.want([work])
        try:
            if not self._is_ready:
                await self._ready()
            if block is not None:
                await block.hold()
            async with self._hold.use():
                return await self._qpu.run(work)
        finally:
            unused.no_longer_want([work])

    async def _candidate(self, work: QuantumWork, instead: Work, block: _Block | None) -> Any:
        """Both implementations give the same kind of answer; the journal says which one ran, and why."""
        for known in (work.id, instead.id):
            if known in self._memory.results:
                return self._recall(known)
        unused = self._cluster.unused
        unused.want([work])
        try:
            await self._ready()
        finally:
            unused.no_longer_want([work])
        reason = self._why_classical(work, instead)
        choice = "classical" if reason else "quantum"
        self._recorder.record(CandidateChosen(work=work.id, instead=instead.id, choice=choice, reason=reason or None))
        return (await self._classical([instead]))[0] if reason else await self._quantum(work, block)

    def _why_classical(self, work: QuantumWork, instead: Work) -> str:
        try:
            device, wait_s = self._qpu.expected_wait_s(work.payload.device)
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
        async with self._hold.use(), self._qpu.reserve():
            yield

    # Beginning, replaying, ending

    def _recall(self, work: str) -> Any:
        return self._results.load(self._memory.results[work])

    async def _ready(self) -> None:
        """Before anything runs: the replayed part must match, and the strategy must have begun."""
        if not self._matches() and not self._memory.has_gaps:
            await self._clock.sleep(REPLAY_GRACE_S)  # branches that overlap may still be on their way
            self._require_match()
        self._record_calls()
        if self._beginning is None:
            self._beginning = asyncio.ensure_future(self._strategy.begin())
        await asyncio.shield(self._beginning)
        self._is_ready = self._matches()

    def _matches(self) -> bool:
        """Whether every call of the journal was made again."""
        return len(self._calls_repeated) == len(self._memory.calls)

    def _record_calls(self) -> None:
        calls, self._unrecorded = self._unrecorded, []
        for call in calls:
            self._recorder.record(call)

    def _require_match(self) -> None:
        for call, event in self._memory.calls.items():
            if call not in self._calls_repeated:
                then = f"{event.kind}({', '.join(event.names)})"
                now = (
                    f"the program now calls {self._new_call}" if self._new_call else "the program makes no such call"
                )
                raise ProgramChanged(
                    f"call {event.order + 1} of the journal, {then}, was not made again as it was; {now}",
                    job=self.name,
                    hint="undo the change to the program or its parameters, or start a new run",
                )

    async def run(self, program: Coroutine[Any, Any, Any]) -> Any:
        """See a program through, and leave nothing held, whatever happens to it."""
        running = asyncio.ensure_future(program)
        try:
            result = await running
            self._require_match()
            self._record_calls()
        except BaseException as error:
            self._cluster.note_failure()
            if isinstance(error, InputError | JobError):
                error.job = error.job or self.name
            try:
                await run_to_end(self._end(running))
            except Exception as second:
                report_failure(second)
            raise
        await run_to_end(self._end(running))
        return result

    async def _end(self, running: asyncio.Task[Any]) -> None:
        begun = [self._beginning] if self._beginning is not None else []
        leftovers = [running, *self._open_calls, *begun]
        for leftover in leftovers:
            leftover.cancel()
        await asyncio.gather(*leftovers, return_exceptions=True)
        self._cluster.spare.clear()
        try:
            await self._strategy.end()
        finally:
            await self._cluster.close()


class _Block:
    """A quantum block of the program; it takes hold of the QPU with its first task that has to run."""

    def __init__(self, reservation: SharedHold[None]) -> None:
        self._reservation = reservation
        self._stack = AsyncExitStack()
        self._holding: asyncio.Task[Any] | None = None
        self.calls: list[asyncio.Task[Any]] = []

    async def finish(self) -> None:
        """Wait for the calls that were made inside; whoever awaits them sees how they ended."""
        if self.calls:
            await asyncio.wait(self.calls)

    async def hold(self) -> None:
        """Take hold, once."""
        if self._holding is None:
            self._holding = asyncio.ensure_future(self._stack.enter_async_context(self._reservation.use()))
        await asyncio.shield(self._holding)

    async def close(self) -> None:
        """Let go."""
        if self._holding is not None:
            await finish(self._holding, cancel=not self._holding.done())
        await self._stack.aclose()
