"""What the events of a run, of the calls of its programs and of tasks change in its state (`fold.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qloom.journal.events import (
    Called,
    CandidateChosen,
    Claimed,
    Diverged,
    JobEnded,
    JobSubmitted,
    ProgramComputed,
    Progressed,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Recalibrated,
    Resumed,
    Returned,
    RunEnded,
    RunStarted,
    SlurmThrottled,
    Speculated,
    TaskEnded,
    TaskStarted,
    WorkerStarted,
)
from qloom.journal.intervals import OPEN, Computation, FinishedCall, Wait, WorkerStart, opened
from qloom.journal.queries import HANDED_ON, is_handover
from qloom.journal.state import Break, DriverState

if TYPE_CHECKING:
    from qloom.journal.fold import RunState


def started(run: RunState, event: RunStarted) -> None:
    run.start = event


def resumed(run: RunState, event: Resumed) -> None:
    is_handed = run.last_event is not None and is_handover(run.last_event, event)
    reason = run.ended.reason if run.ended is not None else None
    run.breaks.append(Break(run.now_us, event.at_us, event.engine_id if is_handed else None, reason))
    run.handed_us, run.asked = run.now_us if is_handed else None, {}
    _stop(run)
    if not is_handed:
        run.gaps.append((run.now_us, event.at_us))
    run.ended = None


def ended(run: RunState, event: RunEnded) -> None:
    run.ended = event
    run.driver.lend(list(run.driver.idle), event.at_us, run.trace)
    run.driver = DriverState()
    if event.state == HANDED_ON:
        for job in run.jobs.values():
            if job.asked_us is None and job.is_submitted:  # it waits for Slurm since it was submitted
                job.asked_us = job.submitted_us
        run.now_us = max(run.now_us, event.at_us)
        _stop(run)


def _stop(run: RunState) -> None:
    for interval in run.driver.idle.values():
        interval.state = OPEN
    run.driver.lend(list(run.driver.idle), run.now_us, run.trace)
    run.driver = DriverState()
    for job in run.jobs.values():
        job.stop(run.now_us)


def submitted(run: RunState, event: JobSubmitted) -> None:
    job = run.job(event.job)
    job.is_submitted, job.submitted_us = True, event.at_us


def job_ended(run: RunState, event: JobEnded) -> None:
    job = run.job(event.job)
    job.ended = job.last_ended = event
    job.drop_offers()


# What programs call


def called(run: RunState, event: Called) -> None:
    job = run.job(event.job)
    job.calls[event.call] = event
    job.went_without = None
    if job.has_answer and event.kind == "classical":
        job.has_answer, run.after_quantum = False, tuple(event.names)


def returned(run: RunState, event: Returned) -> None:
    call = run.job(event.job).calls.pop(event.call, None)
    if call is not None:
        run.trace.calls.append(FinishedCall(call, event.at_us))
        run.returned_calls += 1
        run.returned_us = event.at_us


def diverged(run: RunState, event: Diverged) -> None:
    for call in event.forgotten:
        run.job(event.job).calls.pop(call, None)


def computed(run: RunState, event: ProgramComputed) -> None:
    begin_us = max(0, event.at_us - round(event.seconds * 1e6))
    run.trace.computations.append(Computation(event.job, begin_us, event.at_us))


def progressed(run: RunState, event: Progressed) -> None:
    job = run.job(event.job)
    if job.progress and (job.progress[-1].of != event.of or job.progress[-1].done > event.done):
        job.progress.clear()  # the program counts something else now
    job.progress.append(event)


def chosen(run: RunState, event: CandidateChosen) -> None:
    run.job(event.job).candidates.append(event)


def speculated(run: RunState, event: Speculated) -> None:
    job = run.job(event.job)
    job.drop_offers()
    job.offered.update(dict.fromkeys(event.works, event.at_us))


def claimed(run: RunState, event: Claimed) -> None:
    job = run.job(event.job)
    job.claimed[event.work] = None
    job.end_offer(event.work, event.at_us)


# Work


def worker_started(run: RunState, event: WorkerStarted) -> None:
    run.trace.workers.append(WorkerStart(event.node, event.seconds, event.warm))


def task_started(run: RunState, event: TaskStarted) -> None:
    job, at_us = run.job(event.job), event.at_us
    kind = "spare" if event.spare else "task"
    task = opened(kind, event.job, event.nodes, at_us, event.name, event.work)
    if event.nodes:
        task.within = job.holder_of(event.nodes)
    job.tasks[event.work] = task
    if job.offered and not event.spare:
        job.end_offer(event.work, at_us)


def task_ended(run: RunState, event: TaskEnded) -> None:
    job = run.job(event.job)
    task = job.tasks.pop(event.work, None)
    job.done_tasks += event.state == "done"
    job.failed_tasks += event.state == "failed"
    if task is not None:
        job.dropped_spare += task.kind == "spare" and event.state == "dropped"
        job.end_busy(task, event)


def quantum_queued(run: RunState, event: QuantumQueued) -> None:
    job, at_us = run.job(event.job), event.at_us
    if job.asked_us is None:
        job.asked_us = at_us
    job.queued[event.work] = Wait("qpu", event.job, event, at_us, at_us)


def quantum_started(run: RunState, event: QuantumStarted) -> None:
    job, at_us = run.job(event.job), event.at_us
    task = opened("quantum", event.job, (event.device,), at_us, "", event.work)
    task.queued_us = at_us
    wait = job.end_wait(job.queued, event.work, event)
    if wait is not None and isinstance(wait.asked, QuantumQueued):
        task.label, task.hold, task.queued_us = wait.asked.name, wait.asked.hold, wait.begin_us
    if task.hold == "whole":
        holds = [lease.qpu for lease in job.held.values() if lease.qpu is not None]
        task.within = next((qpu for qpu in holds if qpu.kind == "qpu" and qpu.resource == event.device), None)
    job.executing[event.work] = task


def quantum_ended(run: RunState, event: QuantumEnded) -> None:
    job = run.job(event.job)
    job.done_tasks += event.state == "done"
    job.end_wait(job.queued, event.work, event)
    task = job.executing.pop(event.work, None)
    if task is not None:
        job.has_answer = job.has_answer or event.state == "done"
        job.end_busy(task, event)

    if event.state == "done" and event.calibration is not None and event.device is not None:
        answers = run.calibrations.setdefault(event.device, {})
        answers[event.calibration] = answers.get(event.calibration, 0) + 1


def recalibrated(run: RunState, event: Recalibrated) -> None:
    run.recalibrations.append(event)


def throttled(run: RunState, event: SlurmThrottled) -> None:
    if run.throttled is None:
        run.throttled = event
