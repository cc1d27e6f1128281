"""What a run held and used, from its history alone.

A resource-second is *held* from grant to release, as Slurm bills it, and *busy* while a task runs on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qloom.journal.history import History
from qloom.journal.intervals import Interval

BOUNDED_SLOWDOWN_S = 10.0  # shorter jobs count as this long (Feitelson's bounded slowdown)


@dataclass
class Figures:
    """The figures of one job, or of a run as a whole."""

    wall_s: float = 0.0
    turnaround_s: float = 0.0
    node_wait_s: float = 0.0
    qpu_wait_s: float = 0.0
    node_s_held: float = 0.0
    node_s_busy: float = 0.0
    qpu_s_held: float = 0.0
    qpu_s_busy: float = 0.0
    vqpu_s_held: float = 0.0
    spare_node_s: float = 0.0  # node-seconds of spare work, also part of node_s_busy
    program_s: float = 0.0  # that programs computed themselves, between their calls
    bounded_slowdown: float = 1.0
    energy_j: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For tables and JSON."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in vars(self).items()}


def account(history: History, job: str | None = None) -> Figures:
    """The figures of one job, or (job None) of the whole run."""
    own = history.of(job)
    jobs = history.jobs if job is None else [job]
    sums_us = dict.fromkeys(("node", "qpu", "vqpu", "task", "spare", "quantum"), 0.0)  # whole numbers, mostly
    for interval in own:
        sums_us[interval.kind] += (interval.end_us - interval.begin_us) * len(interval.resources) * interval.weight
    sums_s = {kind: sum_us / 1e6 for kind, sum_us in sums_us.items()}
    executing = [interval for interval in own if interval.kind == "quantum"]
    in_queue_s = _covered_s([interval for interval in executing if interval.hold != "whole"])
    waits_us = _waits_us(history, job)
    wall_s, turnaround_s = _wall_us(history, jobs, own) / 1e6, _turnaround_us(history, jobs, own) / 1e6
    result = Figures(
        wall_s=wall_s,
        turnaround_s=turnaround_s,
        node_wait_s=waits_us["nodes"] / 1e6,
        qpu_wait_s=waits_us["qpu"] / 1e6,
        node_s_held=sums_s["node"],
        node_s_busy=sums_s["task"] + sums_s["spare"],
        qpu_s_held=sums_s["qpu"] + in_queue_s,
        qpu_s_busy=_covered_s(executing),
        vqpu_s_held=sums_s["vqpu"],
        spare_node_s=sums_s["spare"],
        program_s=_program_us(history, job) / 1e6,
        bounded_slowdown=max(1.0, turnaround_s / max(wall_s, BOUNDED_SLOWDOWN_S)),
    )
    result.energy_j = _energy_j(history.start.site.get("watts", {}), result)
    return result


def _waits_us(history: History, job: str | None) -> dict[str, int]:
    """The time in line for nodes, and for a QPU."""
    waits_us = {"nodes": 0, "qpu": 0}
    for wait in history.waits:
        if job in (None, wait.job) and (charged_to := wait.charged_to) is not None:
            waits_us[charged_to] += wait.end_us - wait.begin_us
    return waits_us


def _program_us(history: History, job: str | None) -> int:
    """The time that programs computed themselves."""
    stretches = history.run.trace.computations
    return sum(stretch.end_us - stretch.begin_us for stretch in stretches if job in (None, stretch.job))


def _covered_s(intervals: list[Interval]) -> float:
    """Seconds in which at least one interval lasts, for each resource: a QPU may run several tasks at once."""
    covered_us, ends_us = 0, dict.fromkeys((interval.resource for interval in intervals), -1)
    for interval in sorted(intervals, key=lambda interval: interval.begin_us):
        begin_us = max(interval.begin_us, ends_us[interval.resource])
        covered_us += max(0, interval.end_us - begin_us)
        ends_us[interval.resource] = max(ends_us[interval.resource], interval.end_us)
    return covered_us / 1e6


def _turnaround_us(history: History, jobs: list[str], own: list[Interval]) -> int:
    """From the first submission to the last end, or else to the end of what was held or busy."""
    end_us = max((interval.end_us for interval in own), default=0)
    states = [history.run.jobs[name] for name in jobs]
    submitted_us = min((job.submitted_us for job in states), default=0)
    ends_us = [job.last_ended.at_us if job.last_ended is not None else end_us for job in states]
    return max(0, max(ends_us, default=0) - submitted_us)


def _wall_us(history: History, jobs: list[str], own: list[Interval]) -> int:
    """From start to end, with what the driver computes itself, but without the wait for what is held first."""
    if not jobs:
        return 0
    states = [history.run.jobs[name] for name in jobs]
    last_us = [job.last_ended.at_us for job in states if job.last_ended is not None]
    end_us = max((*last_us, *(interval.end_us for interval in own)), default=0)
    first_us = min((interval.begin_us for interval in own), default=end_us)
    asked_us = min((first_us, *(job.asked_us for job in states if job.asked_us is not None)))
    begin_us = min(asked_us, *(job.submitted_us for job in states))
    spans = ((begin_us, asked_us), (first_us, end_us))
    return sum(until_us - since_us - _stopped_us(history, since_us, until_us) for since_us, until_us in spans)


def _stopped_us(history: History, begin_us: int, end_us: int) -> int:
    return sum(max(0, min(until, end_us) - max(since, begin_us)) for since, until in history.gaps)


def _energy_j(watts: dict[str, float], used: Figures) -> float | None:
    if not any(watts.values()):
        return None
    nodes_j = watts["node_idle"] * (used.node_s_held - used.node_s_busy) + watts["node_busy"] * used.node_s_busy
    return nodes_j + watts["qpu_idle"] * (used.qpu_s_held - used.qpu_s_busy) + watts["qpu_busy"] * used.qpu_s_busy
