"""The queue of a Slurm partition: running and pending jobs (squeue), its nodes (sinfo), past jobs (sacct).

Jobs of other partitions, and sharing of nodes, are left out: each job counts as holding its nodes alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence

from qloom.lab.advisor.crowd import Queue, Seen
from qloom.site import Site
from qloom.slurm.commands import backfill_interval_s, call_once, read_config
from qloom.slurm.facts import default_partition

TIMEOUT_S = 10.0
HISTORY_S = 3 * 86400
SHORTEST_S = 60.0  # a shorter past says too little of how often somebody comes
NO_LIMIT_S = 365 * 86400.0
STANDING_FORMAT = "%T|%D|%l|%M|%V"  # of squeue: state, nodes, limit, elapsed, submitted
NODE_FORMAT = "%T|%L|%l"  # of sinfo: state, default and longest time
ENDED_FIELDS = "NNodes,Timelimit,Submit,ElapsedRaw"  # of sacct
GONE = ("down", "drain", "fail", "maint", "unk", "boot", "inval", "no_resp", "power")


class NoAnswer(Exception):
    """A Slurm command failed or timed out."""


def read_queue(site: Site) -> tuple[Queue, tuple[str, ...]]:
    """The queue of the partition that the site asks for, and what could not be learned; raises `NoAnswer`."""
    partition = site.slurm.partition or default_partition()
    now_s = time.time()
    states = [line.split("|") for line in _ask("sinfo", "-h", "-N", "-p", partition, "-o", NODE_FORMAT)]
    nodes = sum(is_up(state[0]) for state in states)
    if not nodes:
        raise NoAnswer(f"no node of partition {partition} is up")
    standing = read_standing(
        _ask("squeue", "-h", "-p", partition, "-t", "R,PD", "-S", "-p,i", "-o", STANDING_FORMAT), now_s
    )
    ended, notes = _read_ended(partition, now_s)
    before = sorted([*ended, *standing], key=lambda seen: seen.submit_s)
    recent = [seen for seen in before if seen.submit_s >= -HISTORY_S]
    limits_s = [limit_s for text in (site.slurm.time_limit, *states[0][1:]) if (limit_s := seconds_of(text))]
    queue = Queue(
        nodes,
        limits_s[0] if limits_s else NO_LIMIT_S,
        standing,
        recent,
        max(SHORTEST_S, -recent[0].submit_s) if recent else 0.0,  # a young cluster has a short past
        backfill_interval_s(read_config("\n".join(_ask("scontrol", "show", "config")))),
    )
    return queue, notes


def is_up(state: str) -> bool:
    """Whether jobs can use a node in this state of sinfo (`%T`)."""
    return not any(word in state.lower() for word in GONE)


def read_standing(lines: Sequence[str], now_s: float) -> list[Seen]:
    """Running jobs, then pending ones in the order of squeue's output: by priority."""
    seen = []
    for line in lines:
        state, nodes, limit, elapsed, submit = line.split("|")
        running = state == "RUNNING"
        elapsed_s = (seconds_of(elapsed) or 0.0) if running else 0.0
        limit_s = seconds_of(limit) or NO_LIMIT_S
        submit_s = min(0.0, float(submit) - now_s) if submit.isdigit() else 0.0
        kind = "running" if running else "pending"
        seen.append(Seen(int(nodes), max(limit_s, elapsed_s + 1), submit_s, elapsed_s, kind))
    return sorted(seen, key=lambda job: job.state != "running")


def read_ended(lines: Sequence[str], now_s: float) -> list[Seen]:
    """Jobs that have ended, without those that never ran."""
    seen = []
    for line in lines:
        nodes, limit, submit, elapsed = (line.split("|") + [""] * 3)[:4]
        if not (submit.isdigit() and elapsed.isdigit()) or int(elapsed) < 1 or not nodes.isdigit():
            continue
        limit_s = max(seconds_of(limit) or NO_LIMIT_S, float(elapsed))
        seen.append(Seen(max(1, int(nodes)), limit_s, min(0.0, float(submit) - now_s), float(elapsed), "ended"))
    return seen


def seconds_of(text: str) -> float | None:
    """A time as Slurm writes it (`30`, `1:30:00`, `2-12`, `5:00`); None for one without limit."""
    days, dash, rest = text.strip().rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in [*parts, *([days] if dash else [])]) or not rest:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (numbers + [0, 0])[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (numbers + [0])[:2]
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def _read_ended(partition: str, now_s: float) -> tuple[list[Seen], tuple[str, ...]]:
    """Past jobs from accounting; none if there is no accounting."""
    if shutil.which("sacct") is None:
        return [], ("there is no sacct: nobody is expected to come",)
    words = ("-a", "-X", "-n", "-P", "-r", partition, "-s", "CD,F,TO,CA,NF,PR", "-E", "now")
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now_s - HISTORY_S))
    answer = call_once("sacct", *words, "-S", since, "-o", ENDED_FIELDS, timeout_s=TIMEOUT_S)
    if answer.code != 0:
        return [], (f"sacct does not answer ({answer.complaint}): nobody is expected to come",)
    ended = read_ended(answer.stdout.splitlines(), now_s)
    return ended, () if ended else (f"no job has ended in partition {partition} lately: nobody is expected to come",)


def _ask(*words: str) -> list[str]:
    answer = call_once(*words, timeout_s=TIMEOUT_S)
    if answer.code != 0:
        raise NoAnswer(f"{words[0]} does not answer: {answer.complaint}")
    return answer.stdout.splitlines()
