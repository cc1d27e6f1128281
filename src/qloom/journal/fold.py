"""The state of a run, folded from its events one by one: who holds, runs and waits for what, and what is over.

This is the only reader of single events. Accounting, timelines, explanations, forecasts, progress and the laboratory
consume the state (`RunState.jobs`) and what is over (`RunState.trace`). A journal that was cut off anywhere can be
folded, and so can one that is still being written. The fold knows nothing of files or of how anything is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from qloom.journal.intervals import OPEN, Computation, FinishedCall, Interval, Trace, Wait, WorkerStart, opened
from qloom.journal.queries import HANDED_ON, is_handover
from qloom.journal.state import DriverState, JobState, LeaseState


@dataclass(frozen=True)
class Break:
    """When one driver of a run stopped, and the next one began."""

    since_us: int
    until_us: int
    handed_to: str | None = None  # the Slurm job that the run was handed to; None: it was killed or interrupted
    reason: str | None = None  # why it was handed over


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
    _last: Event | None = None
    _handed_us: int | None = None  # when the run was handed to the driver that runs it
    _asked: dict[str, None] = field(default_factory=dict)  # jobs with a request since then

    def apply(self, event: Event) -> None:
        """Take the next event into account."""
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)
        if event.at_us > self.now_us:
            self.now_us = event.at_us
        self._last = event

    def job(self, name: str) -> JobState:
        """The state of one job."""
        job = self.jobs.get(name)
        if job is None:
            job = self.jobs[name] = JobState(name, self.trace)
        return job

    # The run and its jobs

    def _started(self, event: RunStarted) -> None:
        self.start = event

    def _resumed(self, event: Resumed) -> None:
        is_handed = self._last is not None and is_handover(self._last, event)
        reason = self.ended.reason if self.ended is not None else None
        self.breaks.append(Break(self.now_us, event.at_us, event.engine_id if is_handed else None, reason))
        self._handed_us, self._asked = self.now_us if is_handed else None, {}
        self._stop()
        if not is_handed:
            self.gaps.append((self.now_us, event.at_us))
        self.ended = None

    def _ended(self, event: RunEnded) -> None:
        self.ended = event
        self.driver.lend(list(self.driver.idle), event.at_us, self.trace)
        self.driver = DriverState()
        if event.state == HANDED_ON:
            for job in self.jobs.values():
                if job.asked_us is None and job.is_submitted:  # it waits for Slurm since it was submitted
                    job.asked_us = job.submitted_us
            self.now_us = max(self.now_us, event.at_us)
            self._stop()

    def _stop(self) -> None:
        for interval in self.driver.idle.values():
            interval.state = OPEN
        self.driver.lend(list(self.driver.idle), self.now_us, self.trace)
        self.driver = DriverState()
        for job in self.jobs.values():
            job.stop(self.now_us)

    def _submitted(self, event: JobSubmitted) -> None:
        job = self.job(event.job)
        job.is_submitted, job.submitted_us = True, event.at_us

    def _job_ended(self, event: JobEnded) -> None:
        job = self.job(event.job)
        job.ended = job.last_ended = event
        job.drop_offers()

    # What programs call

    def _called(self, event: Called) -> None:
        job = self.job(event.job)
        job.calls[event.call] = event
        job.went_without = None
        if job.has_answer and event.kind == "classical":
            job.has_answer, self.after_quantum = False, tuple(event.names)

    def _returned(self, event: Returned) -> None:
        call = self.job(event.job).calls.pop(event.call, None)
        if call is not None:
            self.trace.calls.append(FinishedCall(call, event.at_us))
            self.returned_calls += 1
            self.returned_us = event.at_us

    def _diverged(self, event: Diverged) -> None:
        for call in event.forgotten:
            self.job(event.job).calls.pop(call, None)

    def _computed(self, event: ProgramComputed) -> None:
        begin_us = max(0, event.at_us - round(event.seconds * 1e6))
        self.trace.computations.append(Computation(event.job, begin_us, event.at_us))

    def _progressed(self, event: Progressed) -> None:
        job = self.job(event.job)
        if job.progress and (job.progress[-1].of != event.of or job.progress[-1].done > event.done):
            job.progress.clear()  # the program counts something else now
        job.progress.append(event)

    def _chosen(self, event: CandidateChosen) -> None:
        self.job(event.job).candidates.append(event)

    def _speculated(self, event: Speculated) -> None:
        job = self.job(event.job)
        job.drop_offers()
        job.offered.update(dict.fromkeys(event.works, event.at_us))

    def _claimed(self, event: Claimed) -> None:
        job = self.job(event.job)
        job.claimed[event.work] = None
        job.end_offer(event.work, event.at_us)

    # Nodes and QPUs held

    def _queued_ahead(self, event: QueuedAhead) -> None:
        job = self.job(event.job)
        if job.asked_us is None:
            job.asked_us = event.at_us

    def _requested(self, event: Requested) -> None:
        job, since_us = self.job(event.job), event.at_us
        if self._handed_us is not None and event.job not in self._asked:
            self._asked[event.job] = None
            since_us = self._handed_us
        if job.asked_us is None:
            job.asked_us = since_us
        job.requests[event.lease] = Wait("nodes" if event.nodes else "qpu", event.job, event, since_us, since_us)
        job.engine_reasons.pop(event.lease, None)

    def _still_waits(self, event: StillWaits) -> None:
        self.job(event.job).engine_reasons[event.lease] = event.reason

    def _granted(self, event: Granted | Grown) -> None:
        job, at_us = self.job(event.job), event.when_us
        if self.gaps and at_us < self.gaps[-1][1]:  # a job that holds nodes already continued the run
            self.gaps[-1] = (self.gaps[-1][0], max(self.gaps[-1][0], at_us))
        job.end_wait(job.requests, event.lease, event)
        lease = job.held.get(event.lease)
        if lease is None:
            lease = job.held[event.lease] = LeaseState([])
        if event.nodes:
            lease.parts.append(opened("node", event.job, event.nodes, at_us, event.lease))
        if self.driver.idle:
            self.driver.lend(event.nodes, at_us, self.trace)
        if isinstance(event, Granted) and event.device is not None:
            if self.driver.idle:
                self.driver.lend((event.device,), at_us, self.trace)
            kind = "qpu" if event.hold == "whole" else "vqpu"
            lease.qpu = opened(kind, event.job, (event.device,), at_us, event.lease)

    def _withdrawn(self, event: Withdrawn) -> None:
        job = self.job(event.job)
        wait = job.end_wait(job.requests, event.lease, event)
        if wait is not None and isinstance(wait.asked, Requested):
            job.went_without = (wait.asked, event.at_us)

    def _shrunk(self, event: Shrunk) -> None:
        job, at_us = self.job(event.job), event.when_us
        lease = job.held.get(event.lease)
        for part in list(lease.parts) if lease is not None else ():
            gone = [node for node in part.resources if node in event.nodes]
            if lease is not None and len(gone) == len(part.resources):
                lease.parts.remove(part)
                job.end_held(part, at_us)
            elif gone:
                job.end_held(part.over(part.begin_us, at_us, gone), at_us)
                part.resources = [node for node in part.resources if node not in gone]
                part.is_reduced = True
        self._keep_for_driver(at_us)

    def _qpu_released(self, event: QpuReleased) -> None:
        job, at_us = self.job(event.job), event.when_us
        lease = job.held.get(event.lease)
        if lease is not None and lease.qpu is not None:
            job.end_held(lease.qpu, at_us)
            lease.qpu = None
        self._keep_for_driver(at_us)

    def _released(self, event: Released) -> None:
        job, at_us = self.job(event.job), event.when_us
        lease = job.held.pop(event.lease, None)
        for interval in lease.intervals() if lease is not None else ():
            job.end_held(interval, at_us)
        self._keep_for_driver(at_us)

    def _driver_started(self, event: DriverStarted) -> None:
        job = "j1" if self.start.jobs == 1 else ""
        kind = "qpu" if event.hold == "whole" else "vqpu"
        idle = self.driver.idle
        self.driver = DriverState(job, list(event.nodes), event.weight or 1.0, event.device, kind, idle)
        self._keep_for_driver(event.when_us)

    def _driver_released(self, event: DriverReleased) -> None:
        driver, nodes = self.driver, event.nodes or []
        driver.nodes = [node for node in driver.nodes if node not in nodes]
        driver.lend(nodes, event.when_us, self.trace)
        if event.device is not None:
            driver.device = None if event.device == driver.device else driver.device
            driver.lend((event.device,), event.when_us, self.trace)

    def _keep_for_driver(self, at_us: int) -> None:
        if self.driver.nodes or self.driver.device is not None:
            held = [interval for job in self.jobs.values() for interval in job.open_intervals() if not interval.work]
            self.driver.keep((resource for interval in held for resource in interval.resources), at_us)

    # Work

    def _worker_started(self, event: WorkerStarted) -> None:
        self.trace.workers.append(WorkerStart(event.node, event.seconds))

    def _task_started(self, event: TaskStarted) -> None:
        job, at_us = self.job(event.job), event.at_us
        kind = "spare" if event.spare else "task"
        task = opened(kind, event.job, event.nodes, at_us, event.name, event.work)
        if event.nodes:
            task.within = job.holder_of(event.nodes)
        job.tasks[event.work] = task
        if job.offered and not event.spare:
            job.end_offer(event.work, at_us)

    def _task_ended(self, event: TaskEnded) -> None:
        job = self.job(event.job)
        task = job.tasks.pop(event.work, None)
        job.done_tasks += event.state == "done"
        job.failed_tasks += event.state == "failed"
        if task is not None:
            job.dropped_spare += task.kind == "spare" and event.state == "dropped"
            job.end_busy(task, event)

    def _quantum_queued(self, event: QuantumQueued) -> None:
        job, at_us = self.job(event.job), event.at_us
        if job.asked_us is None:
            job.asked_us = at_us
        job.queued[event.work] = Wait("qpu", event.job, event, at_us, at_us)

    def _quantum_started(self, event: QuantumStarted) -> None:
        job, at_us = self.job(event.job), event.at_us
        task = opened("quantum", event.job, (event.device,), at_us, "", event.work)
        task.queued_us = at_us
        wait = job.end_wait(job.queued, event.work, event)
        if wait is not None and isinstance(wait.asked, QuantumQueued):
            task.label, task.hold, task.queued_us = wait.asked.name, wait.asked.hold, wait.begin_us
        if task.hold == "whole":
            holds = [lease.qpu for lease in job.held.values() if lease.qpu is not None]
            task.within = next((qpu for qpu in holds if qpu.kind == "qpu" and qpu.resource == event.device), None)
        job.executing[event.work] = task

    def _quantum_ended(self, event: QuantumEnded) -> None:
        job = self.job(event.job)
        job.done_tasks += event.state == "done"
        job.end_wait(job.queued, event.work, event)
        task = job.executing.pop(event.work, None)
        if task is not None:
            job.has_answer = job.has_answer or event.state == "done"
            job.end_busy(task, event)

        if event.state == "done" and event.calibration is not None and event.device is not None:
            answers = self.calibrations.setdefault(event.device, {})
            answers[event.calibration] = answers.get(event.calibration, 0) + 1

    def _recalibrated(self, event: Recalibrated) -> None:
        self.recalibrations.append(event)

    def _throttled(self, event: SlurmThrottled) -> None:
        if self.throttled is None:
            self.throttled = event

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
    RunStarted: RunState._started,
    Resumed: RunState._resumed,
    RunEnded: RunState._ended,
    JobSubmitted: RunState._submitted,
    JobEnded: RunState._job_ended,
    Called: RunState._called,
    Returned: RunState._returned,
    Diverged: RunState._diverged,
    ProgramComputed: RunState._computed,
    Progressed: RunState._progressed,
    CandidateChosen: RunState._chosen,
    Speculated: RunState._speculated,
    Claimed: RunState._claimed,
    QueuedAhead: RunState._queued_ahead,
    Requested: RunState._requested,
    StillWaits: RunState._still_waits,
    Granted: RunState._granted,
    Grown: RunState._granted,
    Withdrawn: RunState._withdrawn,
    Shrunk: RunState._shrunk,
    QpuReleased: RunState._qpu_released,
    Released: RunState._released,
    DriverStarted: RunState._driver_started,
    DriverReleased: RunState._driver_released,
    WorkerStarted: RunState._worker_started,
    TaskStarted: RunState._task_started,
    TaskEnded: RunState._task_ended,
    QuantumQueued: RunState._quantum_queued,
    QuantumStarted: RunState._quantum_started,
    QuantumEnded: RunState._quantum_ended,
    Recalibrated: RunState._recalibrated,
    SlurmThrottled: RunState._throttled,
}


def fold(events: Iterable[Event]) -> RunState:
    """The state after the last of these events."""
    run = RunState()
    for event in events:
        run.apply(event)
    return run
