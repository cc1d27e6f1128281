"""Everything that happens to a loaded cluster by itself: arrivals, ends of rigid jobs, nodes that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any

from qloom.errors import Deadlock, InputError, NeedError
from qloom.lab.load.engine import Engine
from qloom.lab.load.records import JobRecord
from qloom.lab.load.workload import LoadJob
from qloom.lab.schedulers.state import FOREVER_US, Entry, PolicyLine, Resource

Follows = dict[int, tuple[LoadJob, float]]


@dataclass(frozen=True)
class Failures:
    """Each node is lost once in `mtbf_h` hours on average, and comes back after `repair_s`."""

    mtbf_h: float
    repair_s: float = 3600.0

    def __post_init__(self) -> None:
        if not (0 < self.mtbf_h < float("inf") and 0 <= self.repair_s < float("inf")):
            raise InputError("failures need positive hours between them and a time for repair")


class Background:
    """Feeds the engine. A hybrid job is handed to `hybrid`, which says `over` when it has ended."""

    def __init__(
        self,
        engine: Engine,
        partitions: list[str],
        jobs: Iterable[LoadJob],
        follows: Follows | None = None,
        failures: Failures | None = None,
        rng: Random | None = None,
    ) -> None:
        self.engine = engine
        self.records: list[JobRecord] = []
        self.finished: Callable[[], None] = lambda: None
        self.hybrid: Callable[[LoadJob], None] = lambda job: None
        self.lose_held_node: Callable[[Resource, int, float], None] = lambda resource, place, repair_s: None
        self._partitions = partitions
        self._lines: dict[int, PolicyLine] = {}  # partition -> the line of jobs that want nothing but nodes of it
        self._arrivals = iter(jobs)
        self._follows = follows or {}
        self._failures = failures
        self._rng = rng or Random(0)
        self._due: list[tuple[int, int, Callable[[], None]]] = []  # what has no place in the order of arrivals
        self._due_made = 0
        self._open = 0  # jobs that were submitted and have not ended
        self._lost: dict[str | int, tuple[int, int, float]] = {}  # job -> submitted, requeues, node-s for nothing
        engine.ended = self._rigid_ended
        self._next: LoadJob | None = None
        self._next_at_us = FOREVER_US
        self._take_next()
        for first in [number for number in self._follows if number < 0]:
            self._submit_next_of(first, 0)
        if failures is not None:
            self._plan_failure(0)

    def next_us(self) -> int:
        """When the next thing is due; never, once all jobs have ended."""
        next_us, arrival_us = self.engine.next_us, self._next_at_us
        if arrival_us < next_us:
            next_us = arrival_us
        if not self._due:
            return next_us
        if not self._open and self.is_over:
            return FOREVER_US  # a node may still be out for repair, or the next one fail
        return self._due[0][0] if self._due[0][0] < next_us else next_us

    @property
    def is_over(self) -> bool:
        """Whether all jobs have ended and none is to come."""
        return not self._open and self._next is None and not self._follows

    def step(self, now_us: int) -> None:
        """Pass to the engine all that happens at this instant, and let the policy decide."""
        engine = self.engine
        engine.advance(now_us)
        while self._next_at_us <= now_us and self._next is not None:
            self._submit(self._next)
            self._take_next()
        due = self._due
        while due and due[0][0] <= now_us:
            heappop(due)[2]()
        engine.settle()

    def over(self, record: JobRecord) -> None:
        """A job has ended."""
        self.records.append(record)
        self._open -= 1
        if self._follows:
            self._submit_next_of(record.number, self.engine.state.now_us)
        elif not self._open and self.is_over:
            self.finished()

    def later(self, at_us: int, then: Callable[[], None]) -> None:
        """Have something happen at a time."""
        self._due_made += 1
        heappush(self._due, (at_us, self._due_made, then))

    # Jobs

    def _take_next(self) -> None:
        self._next = next(self._arrivals, None)
        self._next_at_us = FOREVER_US if self._next is None else int(self._next.submit_s * 1e6 + 0.5)

    def _submit_next_of(self, number: int, now_us: int) -> None:
        following = self._follows.pop(number, None)
        if following is not None:
            job, pause_s = following
            self._open += 1  # from now on it is on its way
            self.later(now_us + round(pause_s * 1e6), lambda: self._submit(job, counted=True))

    def _submit(self, job: LoadJob, counted: bool = False) -> None:
        if not counted:
            self._open += 1
        if job.hybrid is not None:
            self.hybrid(job)
            return
        line = self._lines.get(job.partition)
        amounts: tuple[int, ...] = (job.nodes,)
        if line is None or job.gres or job.nodes > line.resources[0].total:
            line, amounts = self._with_room(job)
        limit_us, run_us = int(job.limit_s * 1e6 + 0.5), int(job.run_s * 1e6 + 0.5)
        if run_us > limit_us:
            run_us = limit_us
        self.engine.submit(Entry(job.number, line, amounts, limit_us, run_us, job))

    def _with_room(self, job: LoadJob) -> tuple[PolicyLine, tuple[int, ...]]:
        """The line of a job, and what it wants of each resource there; refuses what will never be there."""
        if job.partition >= len(self._partitions):
            raise InputError(
                f"job {job.number} wants partition {job.partition + 1} and there are {len(self._partitions)}",
                hint="--partition NAME:NODES for each of them",
            )
        line = self.engine.state.line((self._partitions[job.partition], *(name for name, _count in job.gres)))
        amounts = (job.nodes, *(count for _name, count in job.gres))
        for resource, amount in zip(line.resources, amounts, strict=True):
            if amount > resource.total:
                raise NeedError(
                    f"job {job.number} asks for {amount} of {resource.name} and there are {resource.total}",
                    hint="a larger cluster, or a trace for a smaller one",
                )
        if not job.gres:
            self._lines[job.partition] = line
        return line, amounts

    def _rigid_ended(self, entry: Entry) -> None:
        job: LoadJob = entry.owner
        now_us = self.engine.state.now_us
        submitted_us, requeues, lost_node_s = entry.queued_us, 0, 0.0
        if self._lost and entry.id in self._lost:
            submitted_us, requeues, lost_node_s = self._lost.pop(entry.id)
        used_node_s = (now_us - entry.start_us) / 1e6 * job.nodes
        self.over(
            JobRecord(
                job.number, "rigid", "", job.project, job.partition, job.nodes, job.limit_s, job.run_s,
                submitted_us / 1e6, entry.start_us / 1e6, now_us / 1e6,
                "done" if job.run_s <= job.limit_s else "timeout", requeues, used_node_s + lost_node_s, used_node_s,
            )
        )  # fmt: skip

    # Nodes that are lost

    def _plan_failure(self, now_us: int) -> None:
        if self._failures is not None:
            nodes = sum(self.engine.state.resources[name].total for name in self._partitions)
            gap_s = self._rng.expovariate(nodes / (self._failures.mtbf_h * 3600))
            self.later(now_us + round(gap_s * 1e6), self._lose_node)

    def _lose_node(self) -> None:
        state, failures = self.engine.state, self._failures
        assert failures is not None  # noqa: S101
        sizes = [state.resources[name].capacity for name in self._partitions]
        resource = state.resources[self._rng.choices(self._partitions, sizes)[0]] if any(sizes) else None
        if resource is not None:
            self.lose(resource, self._rng.randrange(resource.capacity), failures.repair_s)
        self._plan_failure(state.now_us)

    def lose(self, resource: Resource, place: int, repair_s: float) -> None:
        """Lose one of the nodes that are up: first count those of rigid jobs, then the free ones, then the rest."""
        victim, left = self._rigid_on(resource, place)
        if victim is not None:
            submitted_us, requeues, lost_node_s = self._lost.get(victim.id, (victim.queued_us, 0, 0.0))
            lost_node_s += (self.engine.state.now_us - victim.start_us) / 1e6 * victim.held[0]
            self._lost[victim.id] = (submitted_us, requeues + 1, lost_node_s)
            self.engine.requeue(victim)
        elif left >= resource.free:
            self.lose_held_node(resource, left - resource.free, repair_s)
            return
        self.take_away(resource, repair_s)

    def take_away(self, resource: Resource, repair_s: float, back: Callable[[], Any] = lambda: None) -> None:
        """A free node is down for a while."""

        def repaired() -> None:
            self.engine.state.resize(resource, +1)
            self.engine.touch()
            back()

        self.engine.state.resize(resource, -1)
        self.engine.touch()
        self.later(self.engine.state.now_us + round(repair_s * 1e6), repaired)

    def _rigid_on(self, resource: Resource, place: int) -> tuple[Entry | None, int]:
        for entry in self.engine.state.running.values():
            if entry.run_us >= 0 and entry.line.resources[0] is resource:
                if place < entry.held[0]:
                    return entry, 0
                place -= entry.held[0]
        return None, place


def run_plain(background: Background) -> None:
    """Run a workload without hybrid jobs to its end, without an event loop."""
    while (now_us := background.next_us()) != FOREVER_US:
        background.step(now_us)
    if not background.is_over:
        background.engine.refuse_to_wait()
        raise Deadlock("jobs wait for nodes that do not come back")
