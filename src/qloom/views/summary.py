"""Where the time of a finished run went, job by job, in sentences with shares that add up to the whole.

Durations are worded here as people say them, for other views and the advisor too.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from qloom.journal.events import Recalibrated
from qloom.journal.fold import RunState
from qloom.journal.history import History, history_of
from qloom.journal.intervals import WorkerStart
from qloom.journal.state import JobState
from qloom.views.accounting import account

NAMED_AT_MOST = 6
JOBS_ONE_BY_ONE = 8  # with more, the jobs are summed up together

Spans = list[tuple[int, int]]

# What a moment counts as if several apply: what moves the job on comes before what it waits for.
SENTENCES = {
    "executing": "had a QPU executing for {time}",
    "computing": "computed for {time}",
    "program": "had its program compute for {time} between its calls",
    "qpu": "waited {time} for a QPU",
    "nodes": "waited {time} for nodes",
    "stopped": "stood still for {time}, killed and not yet resumed",
    "rest": "spent {time} between phases and on overheads",
}


def where_time_went(now: RunState) -> list[str]:
    """Sentences for every job, or for all of them together if they are many."""
    history = history_of(now)
    lines: list[str] = []
    together: dict[str, int] = {}
    for job in now.jobs.values():
        spans = _spans(history, job.name)
        ended_us = job.ended.at_us if job.ended is not None else now.now_us
        parts = divide(job.submitted_us, ended_us, spans)
        for kind, time_us in parts.items():
            together[kind] = together.get(kind, 0) + time_us
        is_done = job.ended is not None and job.ended.state == "done"
        if len(now.jobs) <= JOBS_ONE_BY_ONE or not is_done:
            lines.append(ended_in_words(job))
        if len(now.jobs) <= JOBS_ONE_BY_ONE:
            lines += _in_words(f"job {job.name}", parts) + _extras(history, job)
    if len(now.jobs) > JOBS_ONE_BY_ONE:
        lines += _in_words(f"all {len(now.jobs)} jobs together", together)
    return lines + starts_in_words(now.trace.workers)


def starts_in_words(starts: Sequence[WorkerStart]) -> list[str]:
    """How workers started, if some of them were warm: that of the others is part of the overheads."""
    warm_s = [start.seconds for start in starts if start.warm]
    cold_s = [start.seconds for start in starts if not start.warm]
    if not warm_s:
        return []
    parts = [
        f"{_times(len(found))} {how}, in {median(found):.1f} s"
        for how, found in (("cold", cold_s), ("warm", warm_s))
        if found
    ]
    return [f"workers started {' and '.join(parts)}"]


def ended_in_words(job: JobState) -> str:
    """How a job ended."""
    if job.ended is None:
        return f"job {job.name} did not end"
    took = human_us(job.ended.at_us - job.submitted_us)
    if job.ended.state == "failed":
        error = job.ended.error or {}
        hint = f" ({error['hint']})" if error.get("hint") else ""
        return f"job {job.name} failed after {took}: {error.get('message', 'no reason is recorded')}{hint}"
    if job.ended.state == "interrupted":
        return f"job {job.name} was interrupted after {took}"
    return f"job {job.name} is done, {took} after its submission"


def recalibration_in_words(event: Recalibrated) -> str:
    """What became of a device between two answers of a run, or while the run was stopped."""
    device, was, now, first = event.device, event.was, event.now, event.first
    if event.resumed:
        since = f"its answers from {first} on are of calibration {was}, new ones are of {now}"
        return f"QPU {device} was recalibrated before the run was resumed: {since}"
    since = f"its answers from {first} on are of calibration {now}, those before of {was}"
    return f"QPU {device} was recalibrated during the run: {since}"


def candidates_in_words(job: JobState) -> list[str]:
    """Which implementation was chosen where there were two, and why."""
    if not job.candidates:
        return []
    classical = [event for event in job.candidates if event.choice == "classical"]
    if not classical:
        return [f"job {job.name} chose the QPU over the classical stand-in {_times(len(job.candidates))}"]
    of_all = f"{len(classical)} of {len(job.candidates)} times" if len(job.candidates) > 1 else "once"
    reason = classical[-1].reason or "no reason is recorded"
    return [f"job {job.name} ran the classical stand-in instead of the QPU {of_all}: {reason}"]


def divide(begin_us: int, end_us: int, spans: dict[str, Spans]) -> dict[str, int]:
    """Split a time span: each moment counts once, as the first kind in `SENTENCES` that applies, or as the rest."""
    edges: list[tuple[int, int, str]] = []
    for kind, of_kind in spans.items():
        for since, until in of_kind:
            if max(since, begin_us) < min(until, end_us):
                edges += [(max(since, begin_us), 1, kind), (min(until, end_us), -1, kind)]
    depth = dict.fromkeys(SENTENCES, 0)
    parts = dict.fromkeys(SENTENCES, 0)
    at_us = begin_us
    for edge_us, change, kind in [*sorted(edges), (max(begin_us, end_us), 0, "rest")]:
        applies = next((name for name in SENTENCES if depth[name]), "rest")
        parts[applies] += edge_us - at_us
        at_us = edge_us
        depth[kind] += change
    return parts


def _spans(history: History, job: str) -> dict[str, Spans]:
    own, waits = history.of(job), [wait for wait in history.waits if wait.job == job]
    return {
        "executing": [(i.begin_us, i.end_us) for i in own if i.kind == "quantum"],
        "computing": [(i.begin_us, i.end_us) for i in own if i.kind in ("task", "spare")],
        "program": [(one.begin_us, one.end_us) for one in history.run.trace.computations if one.job == job],
        "nodes": [(wait.begin_us, wait.end_us) for wait in waits if wait.kind == "nodes"],
        "qpu": [(wait.begin_us, wait.end_us) for wait in waits if wait.kind == "qpu"],
        "stopped": list(history.gaps),
    }


def _in_words(who: str, parts: dict[str, int]) -> list[str]:
    whole_us = sum(parts.values())
    shown = [(kind, time_us) for kind, time_us in parts.items() if whole_us and time_us * 200 >= whole_us]
    return [
        f"{who} {SENTENCES[kind].format(time=human_us(time_us))} ({round(100 * time_us / whole_us)} %)"
        for kind, time_us in sorted(shown, key=lambda part: -part[1])
    ]


def _extras(history: History, job: JobState) -> list[str]:
    used = account(history, job.name)
    idle_s = used.node_s_held - used.node_s_busy
    lines = []
    if used.node_s_held and idle_s > 0.005 * used.node_s_held:
        percent = round(100 * idle_s / used.node_s_held)
        of_held = f"{idle_s:,.1f} of {used.node_s_held:,.1f} node-seconds ({percent} %)"
        lines.append(f"job {job.name} held nodes idle for {of_held}")
    if used.spare_node_s:
        dropped = f"; {_times(job.dropped_spare)} it was dropped" if job.dropped_spare else ""
        lines.append(f"job {job.name} did {human_s(used.spare_node_s)} of work early, as spare work{dropped}")
    return lines + candidates_in_words(job)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def human_s(seconds: float) -> str:
    """`0.3 s`, `12.3 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def human_us(microseconds: int) -> str:
    """The same for the journal's microseconds."""
    return human_s(max(0, microseconds) / 1e6)


def listed(names: Sequence[str]) -> str:
    """Some names, the first few of them if they are many."""
    more = [f"and {len(names) - NAMED_AT_MOST} more"] if len(names) > NAMED_AT_MOST else []
    return ", ".join([*names[:NAMED_AT_MOST], *more])


def counted(number: int, thing: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def printable(text: str) -> str:
    """What users name, without characters that move the cursor, turn the text round or are not seen."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
