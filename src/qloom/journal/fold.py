"""The state of a run, folded from its events one by one: who holds, runs and waits for what, and what is over.

This is the only reader of single events. Accounting, timelines, explanations, forecasts, progress and the laboratory
consume the state (`RunState.jobs`) and what is over (`RunState.trace`). A journal that was cut off anywhere can be
folded, and so can one that is still being written. The fold knows nothing of files or of how anything is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.journal import lease_handlers, run_handlers
from qloom.journal.event import Event
from qloom.journal.events import (
    Called,
    CandidateChosen,
    Claimed,
    Diverged,
    DriverReleased,
    DriverStarted,
    Granted,
    Grown,
    JobEnded,
    JobSubmitted,
    ProgramComputed,
    Progressed,
    QpuReleased,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    QueuedAhead,
    Recalibrated,
    Released,
    Requested,
    Resumed,
    Returned,
    RunEnded,
    RunStarted,
    Shrunk,
    SlurmThrottled,
    Speculated,
    StillWaits,
    TaskEnded,
    TaskStarted,
    Withdrawn,
    WorkerStarted,
)
from qloom.journal.intervals import Interval, Trace, Wait
from qloom.journal.state import Break, DriverState, JobState


@dataclass
class RunState:
    """A run at one moment, and all that is over by then."""

    start: RunStarted = field(default_factory=RunStarted)
    jobs: dict[str, JobState] = field(default_factory=dict)
    trace: Trace = field(default_factory=Trace)
    ended: RunEnded | None = None
    breaks: list[Break] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)  # while nobody ran it: killed, then resumed
    calibrations: dict[str, dict[str, int]] = field(default_factory=dict)  # device -> calibration -> answers of it
    recalibrations: list[Recalibrated] = field(default_factory=list)
    throttled: SlurmThrottled | None = None  # when the run first called Slurm too often
    after_quantum: Sequence[str] | None = None  # the tasks that a job called for when it last had an answer of a QPU
    returned_calls: int = 0  # of all jobs
    returned_us: int = 0  # when the last of them did
    now_us: int = 0
    driver: DriverState = field(default_factory=DriverState)
    last_event: Event | None = None
    handed_us: int | None = None  # when the run was handed to the driver that runs it
    asked: dict[str, None] = field(default_factory=dict)  # jobs with a request since then

    def apply(self, event: Event) -> None:
        """Take the next event into account."""
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)
        if event.at_us > self.now_us:
            self.now_us = event.at_us
        self.last_event = event

    def job(self, name: str) -> JobState:
        """The state of one job."""
        job = self.jobs.get(name)
        if job is None:
            job = self.jobs[name] = JobState(name, self.trace)
        return job

    # What the state says

    def open_intervals(self) -> Iterator[Interval]:
        """All that is held or busy now."""
        for job in self.jobs.values():
            yield from job.open_intervals()
        yield from self.driver.idle.values()

    def open_waits(self) -> Iterator[Wait]:
        """All that waits now."""
        for job in self.jobs.values():
            yield from job.requests.values()
            yield from job.queued.values()

    @property
    def executes(self) -> bool:
        """Whether a task or a quantum task executes."""
        return any(job.tasks or job.executing for job in self.jobs.values())

    def state_of(self, job: str | None = None) -> str | None:
        """How the run, or one job of it, ended last; None if it has not."""
        if job is None:
            return None if self.ended is None else self.ended.state
        ended = self.jobs[job].last_ended if job in self.jobs else None
        return None if ended is None else ended.state

    def requests(self) -> list[tuple[str, Requested]]:
        """Everyone in line for nodes or a QPU, first come first."""
        waiting = [(job.name, request) for job in self.jobs.values() for request in job.requested]
        return sorted(waiting, key=lambda pair: pair[1].n)

    def queue(self, device: str) -> list[tuple[str, QuantumQueued]]:
        """The quantum tasks that wait for a device, first come first."""
        waiting = [(job.name, task) for job in self.jobs.values() for task in job.in_queue if task.device == device]
        return sorted(waiting, key=lambda pair: pair[1].n)

    def executing(self, device: str) -> list[Interval]:
        """What a device executes."""
        running = [task for job in self.jobs.values() for task in job.executing.values()]
        return [task for task in running if task.resource == device]

    def owners(self, device: str, kind: str) -> list[str]:
        """The jobs that hold a device, as a whole ("qpu") or a share of it ("vqpu")."""
        return [
            job.name
            for job in self.jobs.values()
            if any(
                lease.qpu is not None and lease.qpu.kind == kind and lease.qpu.resource == device
                for lease in job.held.values()
            )
        ]


_HANDLERS: dict[type[Event], Callable[[RunState, Any], None]] = {
    RunStarted: run_handlers.started,
    Resumed: run_handlers.resumed,
    RunEnded: run_handlers.ended,
    JobSubmitted: run_handlers.submitted,
    JobEnded: run_handlers.job_ended,
    Called: run_handlers.called,
    Returned: run_handlers.returned,
    Diverged: run_handlers.diverged,
    ProgramComputed: run_handlers.computed,
    Progressed: run_handlers.progressed,
    CandidateChosen: run_handlers.chosen,
    Speculated: run_handlers.speculated,
    Claimed: run_handlers.claimed,
    QueuedAhead: lease_handlers.queued_ahead,
    Requested: lease_handlers.requested,
    StillWaits: lease_handlers.still_waits,
    Granted: lease_handlers.granted,
    Grown: lease_handlers.granted,
    Withdrawn: lease_handlers.withdrawn,
    Shrunk: lease_handlers.shrunk,
    QpuReleased: lease_handlers.qpu_released,
    Released: lease_handlers.released,
    DriverStarted: lease_handlers.driver_started,
    DriverReleased: lease_handlers.driver_released,
    WorkerStarted: run_handlers.worker_started,
    TaskStarted: run_handlers.task_started,
    TaskEnded: run_handlers.task_ended,
    QuantumQueued: run_handlers.quantum_queued,
    QuantumStarted: run_handlers.quantum_started,
    QuantumEnded: run_handlers.quantum_ended,
    Recalibrated: run_handlers.recalibrated,
    SlurmThrottled: run_handlers.throttled,
}


def fold(events: Iterable[Event]) -> RunState:
    """The state after the last of these events."""
    run = RunState()
    for event in events:
        run.apply(event)
    return run
