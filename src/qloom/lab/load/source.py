"""Where a workload comes from: a trace with its side-car, or a model.

The side-car has what SWF has no fields for, one JSON object per line, found by job number:

    {"job": 17, "hybrid": {"iterations": 5, "classical_s": 60, "quantum_s": 12, "parts": 4}}
    {"job": 18, "gres": {"gpu": 2}}

The model draws sizes and run times of rigid batch jobs, with the parameters of U. Lublin and D. G. Feitelson, "The
workload on parallel supercomputers: modeling the characteristics of rigid jobs", J. Parallel and Distributed
Computing 63(11), 2003.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from qloom.errors import InputError
from qloom.lab.load.records import read_swf
from qloom.lab.load.workload import Hybrid, LoadJob, estimate_s
from qloom.site import first_problem
from qloom.strategies import parse_strategy

SERIAL = 0.244  # share of jobs on one node
POWER_OF_2 = 0.576  # share of jobs on a power of two
LOG_LOW, LOG_GAP, LOW_SHARE = 0.8, 2.5, 0.86  # log2 of the size: two stages, the lower one is drawn so often
SHORT = (4.2, 0.94)  # gamma distribution of the logarithm of short run times
LONG = (312.0, 0.03)  # and of long ones
SHORT_SLOPE, SHORT_AT_0 = -0.0054, 0.78  # share of short ones, falling with the size
LONGEST_S = 2 * 24 * 3600  # a longer run time is drawn again, as a cluster's limit would have it
PROJECTS = 16
STRICT = ConfigDict(extra="forbid", strict=False)


@dataclass(frozen=True)
class Source:
    """A trace, or a number of jobs of the model. What is missing is drawn from a seed."""

    trace: Path | None = None
    sidecar: Path | None = None
    jobs: int | None = None  # of a trace: only the first ones

    def __post_init__(self) -> None:
        if self.sidecar is not None and self.trace is None:
            raise InputError("a side-car belongs to a trace", hint="name the trace, too")
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"a workload needs at least 1 job, not {self.jobs}")

    def read(self, nodes: int, seed: int) -> list[LoadJob]:
        """The jobs, for a cluster of `nodes` nodes."""
        if self.trace is None:
            return lublin(self.jobs or 2000, nodes, Random(f"{seed} workload"))
        jobs = read_swf(self.trace, Random(f"{seed} estimates"))
        if self.sidecar is not None:
            jobs = read_sidecar(self.sidecar, jobs)
        return jobs[: self.jobs]


def lublin(jobs: int, nodes: int, rng: Random) -> list[LoadJob]:
    """Jobs for a cluster of `nodes` nodes; `submit_s` is their number until arrivals are given."""
    if jobs < 1 or nodes < 2:
        raise InputError(f"a workload needs at least 1 job and 2 nodes, not {jobs} and {nodes}")
    made = []
    for number in range(1, jobs + 1):
        size = _size(nodes, rng)
        run_s = _run_s(size, rng)
        project = min(int(rng.paretovariate(0.8)) - 1, PROJECTS - 1)  # a few projects submit most jobs
        made.append(LoadJob(number, float(number), run_s, size, estimate_s(run_s, rng), project))
    return made


def _size(nodes: int, rng: Random) -> int:
    kind = rng.random()
    if kind <= SERIAL:
        return 1
    high = math.log2(nodes)
    middle = max(LOG_LOW, high - LOG_GAP)
    low = rng.random() <= LOW_SHARE
    exponent = rng.uniform(LOG_LOW, middle) if low else rng.uniform(middle, high)
    if kind <= SERIAL + POWER_OF_2:
        exponent = math.floor(exponent + 0.5)
    return min(nodes, math.floor(2**exponent + 0.5))


def _run_s(size: int, rng: Random) -> float:
    short = rng.random() <= max(0.0, SHORT_SLOPE * size + SHORT_AT_0)
    while True:
        run_s = math.exp(rng.gammavariate(*(SHORT if short else LONG)))
        if run_s <= LONGEST_S:
            return float(max(1, round(run_s)))


@checked(frozen=True, config=STRICT)
class _Phases:
    iterations: int = Field(ge=1)
    classical_s: float = Field(ge=0, allow_inf_nan=False)
    quantum_s: float = Field(ge=0, allow_inf_nan=False)
    parts: int = Field(default=1, ge=1)
    speculate: float = Field(default=0.0, ge=0, le=1)
    strategy: str | None = None


@checked(frozen=True, config=STRICT)
class _Line:
    job: int
    hybrid: _Phases | None = None
    gres: dict[str, int] = Field(default_factory=dict)


def read_sidecar(path: Path, jobs: list[LoadJob]) -> list[LoadJob]:
    """The jobs, with what the side-car says of them."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the side-car {path}: {getattr(error, 'strerror', error)}") from None
    by_number = {job.number: job for job in jobs}
    for place, line in enumerate(lines, 1):
        if line.strip():
            extra = _parse(line, f"{path}, line {place}")
            if extra.job not in by_number:
                raise InputError(f"{path}, line {place}: the trace has no job {extra.job}")
            by_number[extra.job] = _applied(by_number[extra.job], extra, f"{path}, line {place}")
    return [by_number[job.number] for job in jobs]


def _parse(line: str, where: str) -> _Line:
    try:
        values: Any = json.loads(line)
        return TypeAdapter(_Line).validate_python(values)
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}") from None
    except ValueError:
        raise InputError(f"{where}: this is not JSON", hint='{"job": 17, "hybrid": {...}}') from None


def _applied(job: LoadJob, extra: _Line, where: str) -> LoadJob:
    job = replace(job, gres=tuple(extra.gres.items()))
    if extra.hybrid is None:
        return job
    hybrid = Hybrid(**asdict(extra.hybrid))
    if hybrid.parts > job.nodes:
        raise InputError(f"{where}: {hybrid.parts} parts on {job.nodes} nodes")
    if hybrid.strategy is not None:
        parse_strategy(hybrid.strategy)
    return replace(job, hybrid=hybrid, run_s=hybrid.run_s, limit_s=max(job.limit_s, hybrid.run_s))


def write_sidecar(path: Path, jobs: Iterable[LoadJob]) -> None:
    """What SWF cannot say of these jobs."""
    lines = []
    for job in jobs:
        entry: dict[str, Any] = {"job": job.number}
        if job.hybrid is not None:
            entry["hybrid"] = {name: value for name, value in asdict(job.hybrid).items() if value is not None}
        if job.gres:
            entry["gres"] = dict(job.gres)
        if len(entry) > 1:
            lines.append(json.dumps(entry) + "\n")
    try:
        path.write_text("".join(lines))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
