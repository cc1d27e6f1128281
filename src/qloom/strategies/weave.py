"""A node is held only while a task runs on it, and asked for before it is needed. Spare work fills what is free.

Each lease takes work from the job's common line as long as there is some: required work first, then spare work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

from qloom.model import Need, QpuHold, Work
from qloom.ports import Forecast, Prediction, Requirements
from qloom.strategies.base import Strategy, results
from qloom.strategies.share import EarlyShare

IDLE = 0.1  # a node may idle until the result is expected, and then for this part of the time that it is wanted for
REQUIRED, EARLY, SPARE = "required", "early", "spare"  # what a node is asked for
MOMENT_S = 0.01
POLL_S = 0.5
FULL = 1.1  # spare work shares a node if that takes only so much longer


class Weave(Strategy):
    """Holds a node only while a task runs on it, a share of the QPU only in a quantum phase, and looks ahead."""

    usual_qpu_hold = QpuHold.SHARE
    learns = True
    options: ClassVar[dict[str, float]] = {
        "per_task": 1,  # 0: the nodes of a phase are held until all of it is done
        "ask_early": 1,  # 0: nodes and QPU are asked for when there is work for them
        "spare": 1,  # 0: no spare work is run
        "patience_s": 5.0,  # longest wait for nodes while a block keeps the QPU
        "linger_s": 0.05,  # how long an idle node is kept, in case that the program has work at once
        "confidence": 0.5,  # predictions below are not used
        "skew": 1.0,  # multiplies every prediction, to try what wrong ones cost
    }

    def __init__(self, required: Requirements) -> None:
        super().__init__(required)
        skew = self.settings["skew"]
        self.forecast = required.forecast and required.forecast.scaled(skew)
        self._leases: dict[asyncio.Task[None], int] = {}  # asked for or held -> nodes
        self._asked: dict[asyncio.Task[None], str] = {}  # not granted yet -> what for
        self._runs: dict[asyncio.Future[Any], Work] = {}  # of the classical phases under way
        self._longest_s = 0.0  # of their tasks
        self._spare_leases: dict[asyncio.Task[None], None] = {}  # asked for because of spare work
        self._spare_nodes = 0  # how many of them the spare work of the last offer can use
        self._had_result = False  # a quantum phase is over and no task came after it yet
        self._after_quantum: list[list[tuple[str, float]]] = [[], []]  # what came after the last two: names, seconds
        self._offered: list[Work] = []  # spare work that lets the next phase go first
        self._brief_s = 0.0  # a small part of what the spare work of the last offer takes
        self._was_brief: bool | None = None  # whether the last quantum phase took less, or False late in this one
        self._in_quantum = False
        self._share = EarlyShare(lambda: self.allocate(Need(qpu=self.qpu_hold)))
        self._looking: dict[asyncio.Task[None], None] = {}  # for the moment to ask for it
        self._last: tuple[str, ...] = ()  # names of the tasks of the last phase
        self._leads: dict[tuple[str, ...], bool] = {}  # whether a quantum phase came after tasks of these names
        self._changed = asyncio.Event()  # a task may have begun
        self._working = asyncio.Event()  # a classical phase is under way
        self._failure: BaseException | None = None
        self._ended = False

    # Phases

    async def classical(self, tasks: Sequence[Work]) -> list[Any]:
        """Put the tasks in the job's line, longest first, and ask for as many nodes as they can use."""
        runs = {}
        for work in self._longest_first(tasks):
            run = runs[work.id] = self.cluster.run(work)
            self._runs[run] = work
            run.add_done_callback(self._run_ended)
        self._working.set()
        self._longest_s = max(self._longest_s, *(self._seconds(work) for work in tasks))
        if self._had_result:
            self._had_result = False
            self._after_quantum = [self._after_quantum[1], [self._told(work) for work in tasks]]
        self._asked.update(dict.fromkeys((lease for lease, why in self._asked.items() if why == EARLY), REQUIRED))
        self._adjust()
        self._offered = [work for work in self._offered if work.id not in runs]
        self._offer()
        self._look_for_share(tasks)
        watching = asyncio.ensure_future(self._let_go_of_qpu(tasks)) if self.cluster.keeps_qpu else None
        try:
            return await results([runs[work.id] for work in tasks])
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            if watching is not None:
                watching.cancel()

    def _run_ended(self, run: asyncio.Future[Any]) -> None:
        del self._runs[run]
        if not self._runs:
            self._longest_s = 0.0
            self._working.clear()
        self._adjust()

    async def _let_go_of_qpu(self, tasks: Sequence[Work]) -> None:
        """A block that keeps the QPU waits for nodes only so long."""
        await asyncio.sleep(self.settings["patience_s"])
        waiting = [work.id for work in self.cluster.waiting]
        if any(work.id in waiting for work in tasks):
            await self.cluster.let_go_of_qpu()

    @asynccontextmanager
    async def quantum(self) -> AsyncIterator[None]:
        """A share of the QPU, and no node but for other work; those of the next phase are asked for in time."""
        early = asyncio.ensure_future(self._ask_early())
        late = asyncio.ensure_future(self._offer_late())
        self._in_quantum = True
        self._leads[self._last] = True
        try:
            if self.qpu_hold is QpuHold.TASK:
                yield
            else:
                async with await self._share.take():
                    yield
        finally:
            early.cancel()
            if not late.done():
                self._was_brief = True
            late.cancel()
            self._in_quantum = False
            self._had_result = True

    async def speculate(self, tasks: Sequence[Work]) -> None:
        """Spare work begins at once, unless required work will come in a moment."""
        longest_s = max(self._seconds(work) for work in tasks)
        self._brief_s = IDLE * longest_s if longest_s < float("inf") else 0.0
        self._offered = list(tasks)
        if self._was_brief is False:
            self._offer()

    async def _offer_late(self) -> None:
        """The quantum phase is not that brief."""
        await asyncio.sleep(self._brief_s)
        self._was_brief = False  # spare work that is offered from now on begins at once
        self._offer()

    def _offer(self) -> None:
        """Spare work runs on nodes that are held or free, as long as it proves useful and required work has room."""
        tasks, self._offered = self._offered, []
        most = self.nodes - max(1, len(self._next_tasks_s(tasks)))
        useful = self.forecast is None or self.forecast.spare_use() >= self.settings["confidence"]
        if not tasks or most < 1 or not useful or not self.settings["spare"]:
            return
        self.cluster.fill_idle_nodes(self._longest_first(tasks), most=most, give_way=True)
        waiting = [work.id for work in self.cluster.spare_waiting]
        begun = sum(work.id not in waiting for work in tasks)
        ahead_s = self._expect_s(lambda forecast: forecast.spare_ahead_s()) or 0.0
        capacity_s = FULL * max(ahead_s, *(self._seconds(work) for work in tasks))
        self._spare_leases = {lease: None for lease in self._spare_leases if lease in self._asked}
        wanted = self._bins([work for work in tasks if work.task.nodes == 1], capacity_s)
        self._spare_nodes = min(most, wanted) - begun
        self._adjust()

    async def end(self) -> None:
        """Give everything back."""
        self._ended = True
        held = [*self._leases, *self._looking]
        for lease in held:
            lease.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    # Leases: each is a task that asks for nodes, keeps them while there is work for them, and gives them back

    def _adjust(self) -> None:
        """Ask for what the waiting work needs; leave the line where it has found nodes elsewhere."""
        self._changed.set()
        self._changed = asyncio.Event()
        if self._ended:
            return
        waiting, spare = self.cluster.waiting, len(self.cluster.spare_waiting)
        missing = [work.task.nodes for work in waiting if work.task.nodes > 1]
        capacity_s = self._longest_s if self.settings["per_task"] else 0.0
        narrow = [work for work in self._runs.values() if work.task.nodes == 1]
        running = len(narrow) - sum(work.task.nodes == 1 for work in waiting)
        missing += [1] * (self._bins(narrow, capacity_s) - running)
        for lease, why in list(self._asked.items()):
            if lease.cancelling():
                continue
            if why == SPARE:
                spare -= 1
                surplus = spare < 0 or bool(waiting)
            else:
                surplus = why == REQUIRED and self._leases[lease] not in missing
                if self._leases[lease] in missing:
                    missing.remove(self._leases[lease])
            if surplus:
                lease.cancel()
        blocked = [nodes for nodes in missing if not self._ask(nodes, REQUIRED)]
        if blocked:
            self.cluster.drop_spare(sum(blocked))  # the job holds all that it may
        elif not waiting:
            wanted = max(self._spare_nodes - len(self._spare_leases), 0 if self._leases else 1)
            for _ in range(min(spare, wanted)):
                self._ask(1, SPARE)

    def _ask(self, nodes: int, why: str, reason: str | None = None, idle_s: float = 0.0) -> bool:
        """Begin a lease, unless the job would hold too much."""
        if sum(self._leases.values()) + nodes > self.nodes:
            return False
        lease = asyncio.ensure_future(self._lease(nodes, why, reason, idle_s))
        self._leases[lease] = nodes
        self._asked[lease] = why
        if why == SPARE:
            self._spare_leases[lease] = None
        lease.add_done_callback(self._lease_ended)
        return True

    async def _lease(self, nodes: int, why: str, reason: str | None, idle_s: float) -> None:
        own = asyncio.current_task()
        assert own is not None  # noqa: S101
        held = await self.cluster.allocate(Need(nodes=nodes), spare=why == SPARE, reason=reason)
        del self._asked[own]
        assert held is not None  # noqa: S101  there was no time limit
        async with held:
            self._adjust()
            if why == EARLY:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._working.wait(), idle_s)
            await held.settled(self.settings["linger_s"])
            while self._runs and not self.settings["per_task"]:
                await held.settled(self.settings["linger_s"])
            left_s = self._expect_s(lambda forecast: forecast.quantum_left_s())
            if left_s is not None and left_s <= self._node_wait_s():  # too short to let go
                await held.settled(max(0.0, left_s) + self.settings["linger_s"])

    def _lease_ended(self, lease: asyncio.Task[None]) -> None:
        del self._leases[lease]
        self._asked.pop(lease, None)
        self._spare_leases.pop(lease, None)
        if not lease.cancelled() and lease.exception() is not None:
            self._failure = lease.exception()
            for run in list(self._runs):
                run.cancel()
        self._adjust()

    # Looking ahead

    async def _ask_early(self) -> None:
        """Ask for the nodes of the next phase so long before the quantum phase can end as they take to come."""
        pause_s = POLL_S
        while self.forecast is not None and self.settings["ask_early"]:
            left, next_s = self.forecast.quantum_left_s(), self._next_tasks_s(self.cluster.spare_waiting)
            if left is None or left.confidence < self.settings["confidence"] or not next_s:
                await asyncio.sleep(pause_s)
                pause_s *= 2
            elif left.value > self._node_wait_s():
                await asyncio.sleep(left.value - self._node_wait_s() + MOMENT_S)
            else:
                reason = f"a quantum result is expected in {left.value:.1f} s (confidence {left.confidence:.2f})"
                for _ in range(_bins(next_s, max(next_s), self.nodes)):
                    self._ask(1, EARLY, reason, idle_s=max(0.0, left.value) + IDLE * max(next_s))
                return

    def _look_for_share(self, tasks: Sequence[Work]) -> None:
        """A quantum phase may come after these: one has come after tasks of these names before, or they are new."""
        for looking in self._looking:
            looking.cancel()
        if not self._in_quantum:
            self._leads.setdefault(self._last, False)
        self._last = tuple(work.task.name for work in tasks)
        if self.settings["ask_early"] and self.qpu_hold is QpuHold.SHARE and self._leads.get(self._last, True):
            looking = asyncio.ensure_future(self._ask_for_share(self._longest_first(tasks)[0]))
            self._looking[looking] = None
            looking.add_done_callback(self._looking.pop)

    async def _ask_for_share(self, longest: Work) -> None:
        """So long before the phase can end as nodes take to come; given back if no quantum phase comes in time."""
        while any(work.id == longest.id for work in self.cluster.waiting):
            await self._changed.wait()
        seconds = self._seconds(longest)
        if seconds < float("inf"):
            idle_s = IDLE * seconds
            ahead_s = min(idle_s, self._node_wait_s())
            await asyncio.sleep(seconds - ahead_s)
            if not self._in_quantum and not self.cluster.waiting:  # who waits for nodes keeps no QPU idle
                await self._share.keep(ahead_s + idle_s)

    def _next_tasks_s(self, spare: Sequence[Work]) -> list[float]:
        """Expected seconds of the tasks that come after this quantum phase, spare ones apart; empty if not known."""
        before, last = self._after_quantum
        if last and before == last:
            offered = [self._told(work) for work in spare]
            known: list[float | None] = [told[1] for told in last if told not in offered]
        else:  # what other jobs and earlier runs did
            names = [work.task.name for work in spare]
            after = self.forecast.tasks_after_quantum() if self.forecast is not None else ()
            known = [self._task_s(name) for name in after if name not in names]
        expected_s = [seconds for seconds in known if seconds and seconds < float("inf")]
        return expected_s if len(expected_s) == len(known) else []

    def _told(self, work: Work) -> tuple[str, float]:
        return work.task.name, self._seconds(work)

    def _task_s(self, name: str) -> float | None:
        return self._expect_s(lambda forecast: forecast.task_s(name))

    def _node_wait_s(self) -> float:
        return self._expect_s(lambda forecast: forecast.node_wait_s()) or 0.0

    def _expect_s(self, ask: Callable[[Forecast], Prediction | None]) -> float | None:
        """What is predicted, if that is sure enough to act on."""
        prediction = ask(self.forecast) if self.forecast is not None else None
        sure = prediction is not None and prediction.confidence >= self.settings["confidence"]
        return prediction.value if prediction is not None and sure else None

    def _seconds(self, work: Work) -> float:
        """How long a task is expected to run; for ever if nobody knows, so that it shares a node with no other."""
        if work.task.expected_s is not None:
            return work.task.expected_s * self.settings["skew"]
        learned_s = self._task_s(work.task.name)
        return float("inf") if learned_s is None else learned_s

    def _longest_first(self, tasks: Sequence[Work]) -> list[Work]:
        return sorted(tasks, key=self._seconds, reverse=True)

    def _bins(self, tasks: Sequence[Work], capacity_s: float) -> int:
        return _bins([self._seconds(work) for work in tasks], capacity_s, self.nodes)


def _bins(seconds: Sequence[float], capacity_s: float, most: int) -> int:
    """How many nodes tasks fill that run one after another, for about `capacity_s` on each (first fit decreasing)."""
    filled_s: list[float] = []
    for length_s in sorted(seconds, reverse=True):
        for place, taken_s in enumerate(filled_s):
            if taken_s + length_s <= capacity_s and capacity_s < float("inf"):
                filled_s[place] += length_s
                break
        else:
            filled_s.append(length_s)
    return min(most, len(filled_s))
