"""The figures of one cell, from its journal alone, as we count and as a paper counts; and statistics over repeats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qloom.journal.event import Event
from qloom.journal.history import History, read_history
from qloom.journal.intervals import Interval
from qloom.journal.queries import measured_figures
from qloom.views.accounting import Figures, account

AS_PUBLISHED = "as_published_"  # before the name of a figure: counted as the paper counts
# The 97.5 % quantile of Student's t for 1, 2, ... degrees of freedom; beyond 30 the last one, which is safe.
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def figures_of(events: Sequence[Event], quirks: Sequence[str] = ()) -> dict[str, float]:
    """All figures of a run; with quirks also `as_published_wall_s` and `as_published_node_s`."""
    if (under_load := measured_figures(events)) is not None:
        return under_load
    history = read_history(events)
    used = account(history)
    nodes = history.start.site["nodes"]
    values = used.as_dict()
    qpu_s = used.wall_s * max(1, len(history.start.site["qpus"]))
    return {
        **{name: value for name, value in values.items() if isinstance(value, float)},
        "node_s": values["node_s_held"],
        **(_as_published(history, used, quirks) if quirks else {}),
        "node_use": round(used.node_s_busy / used.node_s_held, 6) if used.node_s_held else 0.0,
        "qpu_use": round(used.qpu_s_busy / qpu_s, 6) if qpu_s else 0.0,
        "cost_node_s": round(nodes * used.wall_s + used.node_s_held, 6),
        **_task_waits(history),
    }


def counted(figures: Mapping[str, float], figure: str) -> float:
    """A figure as the paper counts it."""
    return figures.get(f"{AS_PUBLISHED}{figure}", figures[figure])


def _as_published(history: History, used: Figures, quirks: Sequence[str]) -> dict[str, float]:
    strategy = history.start.strategy.partition("+")[0]
    wall_s, node_s = used.wall_s, used.node_s_held
    if "baseline-double-is-a-sum" in quirks and strategy == "offload":
        wall_s = sum(_held_s(history, job) for job in history.jobs)
    if "workflow-bills-used-nodes" in quirks and strategy == "workflow":
        node_s = _used_nodes_s(history)
    return {f"{AS_PUBLISHED}wall_s": round(wall_s, 6), f"{AS_PUBLISHED}node_s": round(node_s, 6)}


def _held_s(history: History, job: str) -> float:
    """From the first grant of a job to its last release: a job that arrives later has not begun before that."""
    own = history.of(job)
    end_us = max((interval.end_us for interval in own), default=0)
    return (end_us - min((interval.begin_us for interval in own), default=0)) / 1e6


def _task_waits(history: History) -> dict[str, float]:
    """How long quantum tasks stood in the queue of their device, once their job had its hold on it."""
    waits_s = [wait.observed_us / 1e6 for wait in history.waits if wait.outcome == "quantum_started"]
    mean_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
    return {"task_wait_mean_s": round(mean_s, 6), "task_wait_max_s": max(waits_s, default=0.0)}


def _used_nodes_s(history: History) -> float:
    tasks = [interval for interval in history.intervals if interval.kind in ("task", "spare")]

    def used(held: Interval) -> int:
        during = [task for task in tasks if task.begin_us < held.end_us and task.end_us > held.begin_us]
        return len({node for task in during for node in task.resources}.intersection(held.resources))

    return sum(held.seconds * used(held) for held in history.intervals if held.kind == "node")


@dataclass(frozen=True)
class RepeatStatistics:
    """What some repeats have in common: `ci95` is half the width of the interval around the mean."""

    mean: float
    sd: float
    ci95: float
    n: int


def spread_of(values: Sequence[float]) -> RepeatStatistics:
    """The figures of some repeats; of a single one nothing is known but its value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return RepeatStatistics(mean, 0.0, 0.0, 1)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return RepeatStatistics(mean, sd, T_975[min(n - 1, len(T_975)) - 1] * sd / math.sqrt(n), n)
