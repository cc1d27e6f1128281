"""The state of a run, folded from its events one by one: who holds, runs and waits for what.

A journal that was cut off anywhere can be folded, and so can one that is still being written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from qloom.journal.event import Event
from qloom.journal.events import (
    Called,
    CandidateChosen,
    Granted,
    Grown,
    JobEnded,
    JobSubmitted,
    QpuReleased,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Released,
    Requested,
    Resumed,
    Returned,
    RunEnded,
    RunStarted,
    Shrunk,
    StillWaits,
    TaskEnded,
    TaskStarted,
    Withdrawn,
)
from qloom.journal.handover import HANDED_ON, goes_on


@dataclass
class LeaseState:
    """What a lease holds."""

    nodes: list[str]
    device: str | None = None
    hold: str | None = None  # "whole" | "share"


@dataclass
class JobState:
    """One job. What is open is kept as the event that opened it, which says since when."""

    name: str
    submitted_us: int = 0
    ended: JobEnded | None = None
    calls: dict[str, Called] = field(default_factory=dict)
    requests: dict[str, Requested] = field(default_factory=dict)
    engine_reasons: dict[str, str] = field(default_factory=dict)  # lease -> why the engine lets its request wait
    held: dict[str, LeaseState] = field(default_factory=dict)
    tasks: dict[str, TaskStarted] = field(default_factory=dict)
    queued: dict[str, QuantumQueued] = field(default_factory=dict)
    executing: dict[str, QuantumStarted] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # quantum work -> its name
    candidates: list[CandidateChosen] = field(default_factory=list)
    went_without: tuple[Requested, int] | None = None  # a request that was withdrawn since the last call, and when
    done_tasks: int = 0  # quantum tasks included
    failed_tasks: int = 0
    dropped_spare: int = 0

    @property
    def nodes(self) -> list[str]:
        """All nodes that the job holds."""
        return [node for held in self.held.values() for node in held.nodes]

    @property
    def idle_nodes(self) -> list[str]:
        """Those on which no task runs."""
        busy = [node for task in self.tasks.values() for node in task.nodes]
        return [node for node in self.nodes if node not in busy]

    def apply(self, event: Event) -> None:
        """Take an event of this job into account."""
        match event:
            case JobSubmitted():
                self.submitted_us = event.at_us
            case JobEnded():
                self.ended = event
            case Called():
                self.calls[event.call] = event
                self.went_without = None
            case Returned():
                self.calls.pop(event.call, None)
            case CandidateChosen():
                self.candidates.append(event)
            case TaskStarted() | TaskEnded() | QuantumQueued() | QuantumStarted() | QuantumEnded():
                self._apply_work(event)
            case _:
                self._apply_hold(event)

    def _apply_hold(self, event: Event) -> None:
        match event:
            case Requested():
                self.requests[event.lease] = event
                self.engine_reasons.pop(event.lease, None)
            case StillWaits():
                self.engine_reasons[event.lease] = event.reason
            case Granted():
                self.requests.pop(event.lease, None)
                self.held[event.lease] = LeaseState(list(event.nodes), event.device, event.hold)
            case Grown():
                self.requests.pop(event.lease, None)
                self.held.setdefault(event.lease, LeaseState([])).nodes.extend(event.nodes)
            case Withdrawn():
                if (request := self.requests.pop(event.lease, None)) is not None:
                    self.went_without = (request, event.at_us)
            case Shrunk():
                if (held := self.held.get(event.lease)) is not None:
                    held.nodes = [node for node in held.nodes if node not in event.nodes]
            case QpuReleased():
                if (held := self.held.get(event.lease)) is not None:
                    held.device = held.hold = None
            case Released():
                self.held.pop(event.lease, None)

    def _apply_work(self, event: TaskStarted | TaskEnded | QuantumQueued | QuantumStarted | QuantumEnded) -> None:
        match event:
            case TaskStarted():
                self.tasks[event.work] = event
            case TaskEnded():
                task = self.tasks.pop(event.work, None)
                self.done_tasks += event.state == "done"
                self.failed_tasks += event.state == "failed"
                self.dropped_spare += task is not None and task.spare and event.state == "dropped"
            case QuantumQueued():
                self.queued[event.work] = event
                self.names[event.work] = event.name
            case QuantumStarted():
                self.queued.pop(event.work, None)
                self.executing[event.work] = event
            case QuantumEnded():
                self.queued.pop(event.work, None)
                self.executing.pop(event.work, None)
                self.done_tasks += event.state == "done"

    def forget_open(self) -> None:
        """Nothing that was open outlived the driver, except the calls that the program makes again."""
        if self.ended is None or self.ended.state != "done":
            self.ended, self.went_without = None, None
            for opened in (self.requests, self.held, self.tasks, self.queued, self.executing):
                opened.clear()


@dataclass(frozen=True)
class Break:
    """When one driver of a run stopped, and the next one began."""

    since_us: int
    until_us: int
    handed_to: str | None = None  # the Slurm job that the run was handed to; None: it was killed or interrupted
    reason: str | None = None  # why it was handed over


@dataclass
class RunState:
    """A run at one moment."""

    start: RunStarted = field(default_factory=RunStarted)
    jobs: dict[str, JobState] = field(default_factory=dict)
    ended: RunEnded | None = None
    breaks: list[Break] = field(default_factory=list)
    now_us: int = 0

    def apply(self, event: Event) -> None:
        """Take the next event into account."""
        match event:
            case RunStarted():
                self.start = event
            case Resumed():
                self._resume(event)
            case RunEnded():
                self.ended = event
                if event.state == HANDED_ON:
                    self._forget_open()
            case _ if event.job:
                if event.job not in self.jobs:
                    self.jobs[event.job] = JobState(event.job)
                self.jobs[event.job].apply(event)
        self.now_us = max(self.now_us, event.at_us)

    def _resume(self, event: Resumed) -> None:
        handed_to = event.engine_id if self.ended is not None and goes_on(self.ended, event) else None
        reason = self.ended.reason if self.ended is not None else None
        self.breaks.append(Break(self.now_us, event.at_us, handed_to, reason))
        self.ended = None
        self._forget_open()

    def _forget_open(self) -> None:
        for job in self.jobs.values():
            job.forget_open()

    @property
    def executes(self) -> bool:
        """Whether a task or a quantum task executes."""
        return any(job.tasks or job.executing for job in self.jobs.values())

    def requests(self) -> list[tuple[str, Requested]]:
        """Everyone in line for nodes or a QPU, first come first."""
        waiting = [(job.name, request) for job in self.jobs.values() for request in job.requests.values()]
        return sorted(waiting, key=lambda pair: pair[1].n)

    def queue(self, device: str) -> list[tuple[str, QuantumQueued]]:
        """The quantum tasks that wait for a device, first come first."""
        waiting = [(job.name, task) for job in self.jobs.values() for task in job.queued.values()]
        return sorted(((n, t) for n, t in waiting if t.device == device), key=lambda pair: pair[1].n)

    def executing(self, device: str) -> list[tuple[str, QuantumStarted]]:
        """What a device executes."""
        running = [(job.name, task) for job in self.jobs.values() for task in job.executing.values()]
        return [(name, task) for name, task in running if task.device == device]

    def owners(self, device: str, hold: str) -> list[str]:
        """The jobs that hold a device in this way."""
        return [
            job.name
            for job in self.jobs.values()
            if any(held.device == device and held.hold == hold for held in job.held.values())
        ]


def fold(events: Iterable[Event]) -> RunState:
    """The state after the last of these events."""
    run = RunState()
    for event in events:
        run.apply(event)
    return run
