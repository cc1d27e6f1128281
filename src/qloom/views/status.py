"""How a run stands now, in lines of plain text for a terminal: progress, jobs, nodes, QPUs and waits.

The fold of the journal is all that is needed, so a run that goes on and one that has ended read alike.
"""

from __future__ import annotations

import os
from dataclasses import replace

from qloom.journal.fold import RunState
from qloom.journal.state import JobState
from qloom.views.estimate import EndEstimate, left_by_progress_s
from qloom.views.explain import job_in_words
from qloom.views.summary import counted, human_s, human_us, printable

JOBS_SHOWN = 12
JOBS_IN_WORDS = 3  # with more, each has one line
SENTENCES_OF_A_JOB = 3
NODES_DRAWN = 48
BAR = 24


def status_lines(run: RunState, state: str, now_us: int, estimate: EndEstimate | None) -> list[str]:
    """A headline, then how far it is, then who has and waits for what."""
    now = replace(run, now_us=max(run.now_us, now_us))
    lines = [headline(now, state)]
    if state in ("running", "open", "submitted"):
        lines.append(progress_line(now, estimate))
    if now.ended is None:
        lines += _resources(now)
    jobs = list(now.jobs.values())
    for job in jobs[:JOBS_SHOWN]:
        lines.append(_job_line(job))
        lines += [f"  {line}" for line in reported(job, now.now_us)]
        if len(jobs) <= JOBS_IN_WORDS and job.ended is None and now.ended is None:
            lines += [f"  {sentence}" for sentence in job_in_words(now, job)[:SENTENCES_OF_A_JOB]]
    if len(jobs) > JOBS_SHOWN:
        lines.append(f"and {len(jobs) - JOBS_SHOWN} more jobs")
    return [printable(line) for line in lines]


def status_line(run: RunState, state: str, now_us: int, estimate: EndEstimate | None) -> str:
    """The same in one line, for the log of a batch job."""
    now = replace(run, now_us=max(run.now_us, now_us))
    parts = [headline(now, state)]
    if state in ("running", "open", "submitted"):
        parts.append(progress_line(now, estimate))
        held, busy = _held_nodes(now)
        waits = sum(1 for _ in now.open_waits())
        parts.append(f"{counted(held, 'node')} held, {busy} busy")
        parts += [counted(waits, "wait")] if waits else []
    return printable("; ".join(parts))


def headline(now: RunState, state: str) -> str:
    """What is run, and how it stands."""
    start = now.start
    program = os.path.basename(start.program or "the program")
    what = f"{program} under {start.strategy or 'an unknown strategy'}, {start.world or 'in an unknown world'}"
    return f"{what}: {state}{' for' if state in ('running', 'open') else ','} {human_us(now.now_us)}"


def progress_line(now: RunState, estimate: EndEstimate | None) -> str:
    """How many calls have returned, and how long it may still take."""
    if estimate is None:
        returned = counted(now.returned_calls, "call")
        return f"{returned} returned, {counted(done_tasks(now), 'task')} done (no earlier run to estimate from)"
    filled = round(BAR * estimate.done)
    bar = f"[{'#' * filled}{'.' * (BAR - filled)}]"
    left = human_s(estimate.left_s) if estimate.left_s >= 0.05 else "a moment"
    return f"{bar} {estimate.done:.0%}, call {now.returned_calls} of about {estimate.calls}, about {left} left"


def done_tasks(now: RunState) -> int:
    """Of all jobs, quantum tasks included."""
    return sum(job.done_tasks for job in now.jobs.values())


def _resources(now: RunState) -> list[str]:
    busy = {node for job in now.jobs.values() for task in job.tasks.values() for node in task.resources}
    held = list(dict.fromkeys(node for job in now.jobs.values() for node in job.nodes))
    free = max(0, int(now.start.site.get("nodes") or 0) - len(held))
    working = sum(node in busy for node in held)
    marks = "#" * working + "-" * (len(held) - working) + "." * free
    drawn = f"[{marks}] " if marks and len(marks) <= NODES_DRAWN else ""
    lines = [f"nodes {drawn}{working} busy, {len(held) - working} held idle, {free} free"]
    for qpu in now.start.site.get("qpus") or ():
        name = str(qpu.get("name"))
        doing = [f"executes {task.label or 'a task'} of {task.job}" for task in now.executing(name)[:1]]
        doing += [f"held by {owner}" for owner in now.owners(name, "qpu")]
        if shared := len(now.owners(name, "vqpu")):
            doing.append(f"{shared} of {qpu.get('shares', 1)} shares held")
        queue = len(now.queue(name))
        doing += [f"{counted(queue, 'task')} in its queue"] if queue else []
        lines.append(f"QPU {name}: {', '.join(doing) or 'not in use'}")
    return lines


def _held_nodes(now: RunState) -> tuple[int, int]:
    held = sum(len(job.nodes) for job in now.jobs.values())
    return held, held - sum(len(job.idle_nodes) for job in now.jobs.values())


def reported(job: JobState, now_us: int) -> list[str]:
    """How far the program says it is, with an estimate of the rest."""
    if not job.progress or job.ended is not None:
        return []
    last = job.progress[-1]
    far = f"{last.done:g}" if last.of is None else f"{last.done:g} of {last.of:g}"
    left_s = left_by_progress_s(job, now_us)
    parts = [far, last.note or "", "" if left_s is None else f"about {human_s(left_s)} left"]
    return [", ".join(part for part in parts if part)]


def _job_line(job: JobState) -> str:
    if job.ended is not None:
        return f"{job.name} {job.ended.state}, {counted(job.done_tasks, 'task')} done"
    failed = f", {job.failed_tasks} failed" if job.failed_tasks else ""
    phase = next((f", {call.kind} phase {call.order + 1}" for call in reversed(job.calls.values())), "")
    return f"{job.name} {counted(len(job.nodes), 'node')}, {counted(job.done_tasks, 'task')} done{failed}{phase}"
