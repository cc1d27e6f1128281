"""What a run has open at one moment: the jobs with their leases, requests, tasks and calls, and the driver's job.

`fold.py` changes these as events come; what ends goes into the trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from qloom.journal.events import (
    Called,
    CandidateChosen,
    Granted,
    Grown,
    JobEnded,
    Progressed,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Requested,
    TaskEnded,
    Withdrawn,
)
from qloom.journal.intervals import OPEN, Interval, Offer, Trace, Wait, opened

KEPT_PROGRESS = 20  # reports: how fast it went long ago says little
DRIVER = "driver"  # the label of what a driver's job holds beside the leases


@dataclass(frozen=True)
class Break:
    """When one driver of a run stopped, and the next one began."""

    since_us: int
    until_us: int
    handed_to: str | None = None  # the Slurm job that the run was handed to; None: it was killed or interrupted
    reason: str | None = None  # why it was handed over


@dataclass(slots=True)
class LeaseState:
    """What a lease holds: nodes, in parts that were granted together, and perhaps a QPU."""

    parts: list[Interval]
    qpu: Interval | None = None

    @property
    def nodes(self) -> list[str]:
        """All its nodes."""
        return [node for part in self.parts for node in part.resources]

    def intervals(self) -> Iterator[Interval]:
        """All that it holds."""
        yield from self.parts
        if self.qpu is not None:
            yield self.qpu


@dataclass(slots=True)
class JobState:
    """One job: what it waits for, holds and runs now. What is over goes into the trace of the run."""

    name: str
    trace: Trace
    is_submitted: bool = False
    submitted_us: int = 0
    asked_us: int | None = None  # when it first asked for something
    ended: JobEnded | None = None  # None again once another driver continues the job
    last_ended: JobEnded | None = None
    calls: dict[str, Called] = field(default_factory=dict)
    requests: dict[str, Wait] = field(default_factory=dict)
    engine_reasons: dict[str, str] = field(default_factory=dict)  # lease -> why the engine lets its request wait
    held: dict[str, LeaseState] = field(default_factory=dict)
    tasks: dict[str, Interval] = field(default_factory=dict)
    queued: dict[str, Wait] = field(default_factory=dict)
    executing: dict[str, Interval] = field(default_factory=dict)
    offered: dict[str, int] = field(default_factory=dict)  # spare work that the program has not asked for, since when
    claimed: dict[str, None] = field(default_factory=dict)  # spare work that the program asked for
    candidates: list[CandidateChosen] = field(default_factory=list)
    went_without: tuple[Requested, int] | None = None  # a request that was withdrawn since the last call, and when
    progress: deque[Progressed] = field(default_factory=lambda: deque(maxlen=KEPT_PROGRESS))  # the last reports
    has_answer: bool = False  # of a QPU, with no classical call since
    done_tasks: int = 0  # quantum tasks included
    failed_tasks: int = 0
    dropped_spare: int = 0

    @property
    def requested(self) -> list[Requested]:
        """Its requests in line."""
        return [wait.asked for wait in self.requests.values() if isinstance(wait.asked, Requested)]

    @property
    def in_queue(self) -> list[QuantumQueued]:
        """Its quantum tasks that wait for a device."""
        return [wait.asked for wait in self.queued.values() if isinstance(wait.asked, QuantumQueued)]

    @property
    def nodes(self) -> list[str]:
        """All nodes that the job holds."""
        return [node for held in self.held.values() for node in held.nodes]

    @property
    def idle_nodes(self) -> list[str]:
        """Those on which no task runs."""
        busy = {node for task in self.tasks.values() for node in task.resources}
        return [node for node in self.nodes if node not in busy]

    def open_intervals(self) -> Iterator[Interval]:
        """All that the job holds and runs."""
        for lease in self.held.values():
            yield from lease.intervals()
        yield from self.tasks.values()
        yield from self.executing.values()

    def holder_of(self, nodes: Sequence[str]) -> Interval | None:
        """The interval of a lease that has all of these nodes."""
        for lease in reversed(self.held.values()):
            for part in lease.parts:
                if nodes[0] in part.resources:
                    held = part.resources
                    return part if len(nodes) == 1 or nodes == held or set(nodes).issubset(held) else None
        return None

    def end_wait(
        self, waits: dict[str, Wait], key: str, event: Granted | Grown | Withdrawn | QuantumStarted | QuantumEnded
    ) -> Wait | None:
        """A request was answered, or a quantum task left its queue."""
        wait = waits.pop(key, None)
        if wait is not None:
            wait.end_us, wait.ended = max(wait.begin_us, event.when_us), event
            self.trace.waits.append(wait)
        return wait

    def end_held(self, interval: Interval, at_us: int) -> None:
        """Nodes or a QPU were given back."""
        interval.end_us = max(at_us, interval.begin_us)
        self.trace.held.append(interval)

    def end_busy(self, interval: Interval, event: TaskEnded | QuantumEnded) -> None:
        """A task or quantum task has ended."""
        interval.end_us = max(event.at_us, interval.begin_us)
        interval.state, interval.ended = event.state, event
        self.trace.busy.append(interval)

    def end_offer(self, work: str, at_us: int) -> None:
        """The program asks for work that it may have offered before."""
        offered_us = self.offered.pop(work, None)
        if offered_us is not None:
            self.trace.offers.append(Offer(work, offered_us, at_us))

    def drop_offers(self) -> None:
        """A program that offers the next work, or ends, has had its chance to ask for the last."""
        self.trace.offers += [Offer(work, offered_us, None) for work, offered_us in self.offered.items()]
        self.offered.clear()

    def stop(self, at_us: int) -> None:
        """The driver is gone: nothing that was open outlived it, except the calls that the program makes again."""
        for interval in self.open_intervals():
            interval.end_us, interval.state = max(at_us, interval.begin_us), OPEN
            (self.trace.busy if interval.work else self.trace.held).append(interval)
        for wait in (*self.requests.values(), *self.queued.values()):
            wait.end_us = max(wait.begin_us, at_us)
            self.trace.waits.append(wait)
        for still_open in (self.requests, self.held, self.tasks, self.queued, self.executing):
            still_open.clear()
        self.progress.clear()
        if self.ended is None or self.ended.state != "done":
            self.ended, self.went_without = None, None


@dataclass
class DriverState:
    """The engine's job that the driver lives in: its nodes and QPU are held whether they are in a lease or not."""

    job: str = ""  # that it is counted for; none if the run has several
    nodes: list[str] = field(default_factory=list)
    weight: float = 1.0
    device: str | None = None
    kind: str = "vqpu"
    idle: dict[str, Interval] = field(default_factory=dict)  # what is in no lease, by node or device

    def lend(self, resources: Iterable[str], at_us: int, trace: Trace) -> None:
        """Some of it is in a lease from now on, or was given back."""
        for resource in resources:
            interval = self.idle.pop(resource, None)
            if interval is not None and at_us > interval.begin_us:  # else it was lent from the start
                interval.end_us = at_us
                trace.held.append(interval)

    def keep(self, leased: Iterable[str], at_us: int) -> None:
        """Hold what is in no lease."""
        taken = {*leased, *self.idle}
        for node in self.nodes:
            if node not in taken:
                self.idle[node] = opened("node", self.job, (node,), at_us, DRIVER)
                self.idle[node].weight = self.weight
        if self.device is not None and self.device not in taken:
            self.idle[self.device] = opened(self.kind, self.job, (self.device,), at_us, DRIVER)
