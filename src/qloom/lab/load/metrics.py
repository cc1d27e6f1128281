"""The figures of a loaded cluster, from the records of its jobs without the warm-up.

Means have 95 % intervals. Waits of neighbouring jobs are alike, so means of batches are compared, not jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from statistics import NormalDist, fmean, stdev
from typing import Any, NamedTuple

from qloom.errors import InputError
from qloom.lab.load.hybrid import Wanted
from qloom.lab.load.records import IN_ORDER, JobRecord

Times = tuple[float, float, float]  # of a job: wait, turnaround, bounded slowdown
BATCHES = 20
CONFIDENCE = 0.95


@dataclass(frozen=True)
class JobFigures:
    """Figures over all jobs, the rigid ones or the hybrid ones."""

    jobs: int
    failed: int
    wait_s: Mean
    wait_p95_s: float
    turnaround_s: Mean
    turnaround_p95_s: float
    bounded_slowdown: Mean
    bounded_slowdown_p95: float


@dataclass(frozen=True)
class LoadMetrics:
    """What a run under load was like."""

    all: JobFigures
    rigid: JobFigures
    hybrid: JobFigures
    fairness: float  # Jain's index of the projects' mean bounded slowdowns: 1 is even
    node_utilisation: float  # tasks run, over available
    node_held: float  # over available
    qpu_utilisation: float  # executing over available
    qpu_idle_while_wanted_s: float  # summed over QPUs
    throughput_per_h: float
    wasted_node_s: float  # speculation
    energy_j: float  # of hybrid jobs, if the site says what nodes and QPUs draw
    requeues: int
    harm_s: Mean | None = None  # what rigid jobs wait longer because of the hybrid ones

    def as_dict(self) -> dict[str, Any]:
        """For JSON: means as pairs."""
        return {name: _plain(value) for name, value in vars(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, JobFigures):
        return {name: _plain(part) for name, part in vars(value).items()}
    if isinstance(value, Mean):
        return [_plain(value.value), _plain(value.half_width)]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 6)
    return value


def measure(
    records: Sequence[JobRecord], nodes: int, qpus: Mapping[str, int], qpu_times: Sequence[Wanted], warm_up: float
) -> LoadMetrics:
    """Figures over the jobs that were submitted after the warm-up, and the time until the last submission."""
    if not records:
        raise InputError("no job has ended: there is nothing to measure", hint="a workload needs at least one job")
    if not 0 <= warm_up < 1:
        raise InputError(f"the warm-up is a part of the jobs from 0 to below 100 %, not {warm_up:.0%}")
    ordered = sorted(records, key=IN_ORDER)
    measured = ordered[int(len(ordered) * warm_up) :]
    begin_s, end_s = measured[0].submit_s, max(measured[-1].submit_s, measured[0].submit_s + 1e-6)
    if len(measured) == 1 or end_s - begin_s < 1e-3:  # all at once: until the last has ended
        end_s = max(record.end_s for record in measured)
    span_s = end_s - begin_s
    busy_s, idle_wanted_s = _qpu_seconds(qpu_times, qpus, begin_s, end_s)
    parts = [_within(record, begin_s, end_s) for record in ordered]
    nodes_busy_s = sum(part * record.node_s_busy for part, record in zip(parts, ordered, strict=True))
    nodes_held_s = sum(part * record.node_s_held for part, record in zip(parts, ordered, strict=True))
    times = [(record.wait_s, record.turnaround_s, record.bounded_slowdown) for record in measured]
    return LoadMetrics(
        all=_group(measured, times),
        rigid=_group_of("rigid", measured, times),
        hybrid=_group_of("hybrid", measured, times),
        fairness=_jain(measured, times),
        node_utilisation=nodes_busy_s / (nodes * span_s),
        node_held=nodes_held_s / (nodes * span_s),
        qpu_utilisation=busy_s / (len(qpus) * span_s) if qpus else math.nan,
        qpu_idle_while_wanted_s=idle_wanted_s,
        throughput_per_h=3600 * sum(begin_s <= record.end_s <= end_s for record in ordered) / span_s,
        wasted_node_s=sum(record.wasted_node_s for record in measured),
        energy_j=sum(record.energy_j for record in measured),
        requeues=sum(record.requeues for record in measured),
    )


def harm_s(records: Sequence[JobRecord], without: Sequence[JobRecord], warm_up: float) -> Mean:
    """How much longer the same rigid jobs waited than in a run without the hybrid ones."""
    before = {record.number: record.wait_s for record in without}
    ordered = sorted(records, key=IN_ORDER)
    measured = ordered[int(len(ordered) * warm_up) :]
    return batch_mean([record.wait_s - before[record.number] for record in measured if record.kind == "rigid"])


def _group_of(kind: str, records: list[JobRecord], times: list[Times]) -> JobFigures:
    chosen = [record.kind == kind for record in records]
    return _group(list(compress(records, chosen)), list(compress(times, chosen)))


def _group(records: list[JobRecord], times: list[Times]) -> JobFigures:
    waits_s, turnarounds_s, slowdowns = zip(*times, strict=True) if times else ((), (), ())
    return JobFigures(
        jobs=len(records),
        failed=sum(record.state != "done" for record in records),
        wait_s=batch_mean(waits_s),
        wait_p95_s=percentile(waits_s, 0.95),
        turnaround_s=batch_mean(turnarounds_s),
        turnaround_p95_s=percentile(turnarounds_s, 0.95),
        bounded_slowdown=batch_mean(slowdowns),
        bounded_slowdown_p95=percentile(slowdowns, 0.95),
    )


def _within(record: JobRecord, begin_s: float, end_s: float) -> float:
    """The part of a job's time that lies in the measured time; what it holds is taken as even over its time."""
    length_s = record.end_s - record.start_s
    if begin_s <= record.start_s and record.end_s <= end_s:  # as most are
        return 1.0 if length_s > 0 else 0.0
    inside_s = min(record.end_s, end_s) - max(record.start_s, begin_s)
    return max(0.0, inside_s) / length_s if length_s > 0 else 0.0


def _jain(records: list[JobRecord], times: list[Times]) -> float:
    by_project: dict[int, list[float]] = {}
    for record, (_wait_s, _turnaround_s, slowdown) in zip(records, times, strict=True):
        by_project.setdefault(record.project, []).append(slowdown)
    means = [fmean(slowdowns) for slowdowns in by_project.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means))


def _qpu_seconds(
    times: Sequence[Wanted], qpus: Mapping[str, int], begin_s: float, end_s: float
) -> tuple[float, float]:
    """Seconds in which QPUs execute something, and in which they execute nothing although somebody waits."""
    busy_us = idle_wanted_us = 0
    for device in qpus:
        own = [time for time in times if time.device == device]
        marks = sorted(
            (min(max(at_us, round(begin_s * 1e6)), round(end_s * 1e6)), change, time.used)
            for time in own
            for at_us, change in ((time.begin_us, 1), (time.end_us, -1))
        )
        used = wanted = 0
        for (at_us, change, is_use), following in pairwise(marks):
            used, wanted = (used + change, wanted) if is_use else (used, wanted + change)
            length_us = following[0] - at_us
            busy_us += length_us if used else 0
            idle_wanted_us += length_us if wanted and not used else 0
    return busy_us / 1e6, idle_wanted_us / 1e6


class Mean(NamedTuple):
    """A mean and half the width of its 95 % interval; nan if there are too few values."""

    value: float
    half_width: float

    @property
    def relative(self) -> float:
        """The half-width in parts of the mean."""
        return self.half_width / abs(self.value) if self.value else 0.0


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of independent values."""
    if not values:
        return Mean(math.nan, math.nan)
    if len(values) == 1:
        return Mean(values[0], math.nan)
    return Mean(fmean(values), student_t(len(values) - 1) * stdev(values) / math.sqrt(len(values)))


def batch_mean(values: Sequence[float], batches: int = BATCHES) -> Mean:
    """The mean of values in the order of time, its interval from the means of batches."""
    if len(values) < 2 * batches:
        return Mean(fmean(values) if values else math.nan, math.nan)
    size = len(values) / batches
    means = [fmean(values[round(place * size) : round((place + 1) * size)]) for place in range(batches)]
    return Mean(fmean(values), mean_of(means).half_width)


def student_t(freedom: int) -> float:
    """The 97.5 % point of Student's t, by its expansion around the normal one (Hill 1970: exact for 1 and 2)."""
    if freedom == 1:
        return math.tan(math.pi * CONFIDENCE / 2)
    if freedom == 2:
        return CONFIDENCE * math.sqrt(2 / (1 - CONFIDENCE**2))
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which a part of all values lies; nan if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)] if ordered else math.nan
