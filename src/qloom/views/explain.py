"""What a run waits for and why, or where its time went: plain words, from the journal alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qloom.journal.event import Event
from qloom.journal.events import QuantumQueued, Recalibrated, Requested, RunEnded, SlurmThrottled
from qloom.journal.fold import RunState, fold
from qloom.journal.intervals import Interval
from qloom.journal.queries import HANDED_ON, SlurmJob
from qloom.journal.state import Break, JobState
from qloom.views.summary import (
    NAMED_AT_MOST,
    candidates_in_words,
    counted,
    ended_in_words,
    human_s,
    human_us,
    listed,
    recalibration_in_words,
    where_time_went,
)


def explain(
    journal: Sequence[Event] | RunState,
    *,
    alive: bool | None = None,
    now_us: int | None = None,
    run: str = "last",
    slurm_job: SlurmJob | None = None,
) -> list[str]:
    """One short sentence a line, from the events of a run or from their fold, which may go on.

    `alive` says whether the process that writes the journal is still there (None: not known), `now_us` how long
    ago the run began, if that is later than the last event, `run` what to call it in advice, and `slurm_job` how
    the job stands that the run was handed to or that its last driver lived in.
    """
    if not journal:
        return ["the journal is empty: the run was killed before it began"]
    now = replace(journal) if isinstance(journal, RunState) else fold(journal)
    handed_us = now.now_us
    is_handed = now.ended is not None and now.ended.state == HANDED_ON
    if now_us is not None and (is_handed or (now.ended is None and alive is not False)):
        now.now_us = max(now.now_us, now_us)
    lines = [_headline(now), *_breaks_in_words(now.breaks), *_throttled_in_words(now.throttled)]
    lines += [_recalibrated_in_words(event) for event in now.recalibrations]
    if is_handed and now.ended is not None:
        return lines + _handed_in_words(str(now.ended.engine_id), now.now_us - handed_us, slurm_job, run)
    if now.ended is not None:
        lived_in = _driver_in_words(slurm_job) if now.ended.state == "interrupted" else []
        return lines + where_time_went(now) + lived_in + _advice(now.ended, run)
    if alive is False:
        lines += _driver_in_words(slurm_job)
        lines.append(f"the run was killed or its process is gone: qloom resume {run}")
        lines.append("this is where it stood:")
    if not now.jobs:
        lines.append("no job has been submitted yet")
    for job in now.jobs.values():
        lines += job_in_words(now, job)
    return lines


def _headline(now: RunState) -> str:
    start = now.start
    count = start.jobs
    program = (start.program or "the program").rpartition("/")[2]  # a path would break the line anywhere
    what = f"{program}, {counted(count, 'job')} under {start.strategy or 'an unknown strategy'}"
    where = f"in world {start.world}" if start.world else "in an unknown world"
    length = human_us(now.now_us)
    state = now.ended.state if now.ended is not None else HANDED_ON
    if state == HANDED_ON:
        return f"{what} {where}: {length} after it began"
    return f"{what} {where}: {'was interrupted' if state == 'interrupted' else state} after {length}"


def _breaks_in_words(breaks: Sequence[Break]) -> list[str]:
    named = breaks[-NAMED_AT_MOST:]
    lines = [f"it went from driver to driver {len(breaks)} times; these are the last:"] if named != breaks else []
    for gap in named:
        at, until = human_us(gap.since_us), human_us(gap.until_us)
        if gap.handed_to is not None:
            why = f" because {gap.reason}" if gap.reason is not None else ""
            lines.append(f"handed to Slurm job {gap.handed_to} at {at}{why}; its driver began at {until}")
        else:
            after = human_us(gap.until_us - gap.since_us)
            lines.append(f"it was resumed at {until}, {after} after it had stopped")
    return lines


def _recalibrated_in_words(event: Recalibrated) -> str:
    stopped = "; the run stopped" if event.action == "stop" else ""
    return f"at {human_us(event.at_us)} {recalibration_in_words(event)}{stopped}"


def _throttled_in_words(first: SlurmThrottled | None) -> list[str]:
    """Said once, however many drivers had to be slowed down."""
    if first is None:
        return []
    since, most = human_us(first.at_us), f"{first.most_calls_per_s:g}"
    return [f"at {since} it called Slurm too often; from then on it is held to {most} calls a second"]


def _handed_in_words(id: str, for_us: int, job: SlurmJob | None, run: str) -> list[str]:
    if job is None or job.stage == "unknown":
        lines = [f"Slurm job {id} goes on with it: squeue -j {id}"]
        return lines + ([job.words] if job is not None else [])
    if job.stage == "ended":
        return [
            f"Slurm job {id} was to go on with it and {job.words}",
            f"what is done is kept; to go on: qloom resume {run}",
        ]
    return [f"submitted as Slurm job {id}, {human_us(for_us)} ago: {job.words}"]


def _driver_in_words(job: SlurmJob | None) -> list[str]:
    """How the Slurm job ended that took its driver with it."""
    if job is None or job.stage != "ended":
        return []
    return [f"its driver lived in Slurm job {job.id}, which {job.words}"]


def _advice(ended: RunEnded, run: str) -> list[str]:
    if ended.state == "interrupted":
        return [f"what is done is kept; to go on: qloom resume {run}"]
    if ended.state == "failed":
        return [f"what is done is kept; to try the rest again: qloom resume {run}"]
    return []


def job_in_words(now: RunState, job: JobState) -> list[str]:
    """What one job waits for, runs and holds idle."""
    who = f"job {job.name}"
    if job.ended is not None:
        return [ended_in_words(job)]
    lines = [_request_in_words(now, job, request) for request in job.requested]
    lines += [_queued_in_words(now, job, task) for task in job.in_queue]
    lines += [
        f"{who} has {task.label or 'a quantum task'} executing on QPU {task.resource}"
        f" (for {human_us(now.now_us - task.begin_us)})"
        for task in job.executing.values()
    ]
    firm = [task for task in job.tasks.values() if task.kind != "spare"]
    spare = [task for task in job.tasks.values() if task.kind == "spare"]
    if firm:
        lines.append(f"{who} runs {counted(len(firm), 'task')}: {_tasks(now, firm)}")
    if not lines:
        lines.append(_in_between(now, job))
    if spare:
        lines.append(f"{who} does spare work meanwhile: {_tasks(now, spare)}")
    if job.idle_nodes and not (firm and not job.queued and not job.executing):
        lines.append(f"{who} holds {listed(job.idle_nodes)} idle meanwhile")
    if job.went_without is not None and firm:
        request, at_us = job.went_without
        asked = f"{counted(request.nodes, 'more node' if request.grow else 'node')}"
        lines.append(f"{who} asked for {asked} and went on without after {human_us(at_us - request.at_us)}")
    return lines + candidates_in_words(job)


def _request_in_words(now: RunState, job: JobState, request: Requested) -> str:
    waited = human_us(now.now_us - request.at_us)
    device, hold = request.device, request.hold
    wants_qpu = bool(device) and hold in ("whole", "share")
    if request.grow:
        patience_s = (now.start.options or {}).get("patience_s")
        bound = f" of {human_s(patience_s)}" if patience_s is not None else ""
        more = counted(request.nodes, "more node")
        what = f"job {job.name} waits up to its patience{bound} for {more}, {waited} so far"
    else:
        things = [counted(request.nodes, "node")] if request.nodes else []
        things += [f"{'QPU' if hold == 'whole' else 'a share of QPU'} {device}"] if wants_qpu else []
        what = f"job {job.name} has waited {waited} for {' and '.join(things)}"
    if now.start.world == "slurm":  # others are in its line, of whom this journal knows nothing
        return f"{what}: {job.engine_reasons.get(request.lease, 'it stands in the queue of Slurm')}"
    reasons = _node_reasons(now, request) if request.nodes else []
    reasons += _qpu_reasons(now, str(device), str(hold)) if wants_qpu else []
    ahead = _ahead(now, job, request)
    if ahead and not reasons:
        reasons.append(f"{listed(ahead)} came first")
    return f"{what}: {'; '.join(reasons) or 'it is free, and will be granted at the next turn'}"


def _node_reasons(now: RunState, request: Requested) -> list[str]:
    holders = [(job.name, job.nodes) for job in now.jobs.values() if job.nodes and job.name != request.job]
    own = now.jobs[request.job].nodes
    free = now.start.site.get("nodes", 0) - sum(len(nodes) for _, nodes in holders) - len(own)
    if free >= (1 if request.grow else request.nodes):
        return []
    reasons = [f"job {name} holds {listed(nodes)}" for name, nodes in holders]
    return reasons or ([f"it holds {listed(own)} itself"] if own else [])


def _qpu_reasons(now: RunState, device: str, hold: str) -> list[str]:
    reasons = _away(now, device)
    reasons += [f"job {name} holds the whole QPU" for name in now.owners(device, "qpu")]
    sharers = now.owners(device, "vqpu")
    if sharers and (hold == "whole" or len(sharers) >= _shares(now, device)):
        reasons += [f"job {name} holds a share of it" for name in sharers]
    return reasons


def _shares(now: RunState, device: str) -> int:
    return next((int(qpu.get("shares", 1)) for qpu in _qpus(now) if qpu.get("name") == device), 1)


def _qpus(now: RunState) -> list[dict[str, Any]]:
    return list(now.start.site.get("qpus") or [])


def _away(now: RunState, device: str) -> list[str]:
    """The site says when a device is away."""
    for qpu in _qpus(now):
        if qpu.get("name") == device:
            if qpu.get("offline"):
                return [f"QPU {device} is offline"]
            for begin_s, until_s in qpu.get("outages_s") or ():
                if begin_s * 1e6 <= now.now_us and (until_s is None or now.now_us < until_s * 1e6):
                    back = "no return is planned" if until_s is None else f"back at {human_s(until_s)}"
                    return [f"QPU {device} is away, {back}"]
    return []


def _ahead(now: RunState, job: JobState, request: Requested) -> list[str]:
    """Jobs before it in the same line: a line is first come first served, one for nodes and one for each QPU."""
    return list(
        dict.fromkeys(
            f"job {name}"
            for name, other in now.requests()
            if other.n < request.n
            and name != job.name
            and ((other.nodes and request.nodes) or other.device == request.device)
        )
    )


def _queued_in_words(now: RunState, job: JobState, task: QuantumQueued) -> str:
    device = task.device
    what = f"job {job.name} has waited {human_us(now.now_us - task.at_us)} for QPU {device}"
    running = now.executing(device)
    before = [name for name, other in now.queue(device) if other.n < task.n]
    owners = [name for name in now.owners(device, "qpu") if name != job.name]
    reasons = _away(now, device) + [f"job {name} holds the whole QPU" for name in owners]
    if ahead := len(running) + len(before):
        details = [f"{other.job} executing for {human_us(now.now_us - other.begin_us)}" for other in running]
        details += [f"{name} queued" for name in before]
        verb = "is" if ahead == 1 else "are"
        reasons.append(f"{counted(ahead, 'quantum task')} {verb} ahead of it ({listed(details)})")
    return f"{what}: {'; '.join(reasons) or 'it is next'}"


def _in_between(now: RunState, job: JobState) -> str:
    """Nothing runs or waits by name: the program computes by itself, or a quantum block waits for its session."""
    quantum = [call for call in job.calls.values() if call.kind == "quantum"]
    if not quantum:
        spare = any(task.kind == "spare" for task in job.tasks.values())
        if job.calls and spare:
            return f"job {job.name} waits for the result of work that was begun as spare"
        if job.calls:
            return f"job {job.name} is about to run {listed(list(job.calls.values())[-1].names)}"
        return f"job {job.name} is between two phases, in the program's own code"
    for device in [str(qpu.get("name")) for qpu in _qpus(now)]:
        others = [name for name in now.owners(device, "qpu") if name != job.name]
        others += [task.job for task in now.executing(device) if task.job != job.name]
        reasons = _away(now, device) + [f"job {name} uses it" for name in dict.fromkeys(others)]
        if reasons:
            return f"job {job.name} waits for a hold on QPU {device}: {'; '.join(reasons)}"
    return f"job {job.name} is about to send {listed(quantum[-1].names)} to a QPU"


def _tasks(now: RunState, tasks: list[Interval]) -> str:
    return listed([f"{t.label} on {listed(t.resources)} (for {human_us(now.now_us - t.begin_us)})" for t in tasks])
