"""The side-car of a trace: what SWF has no fields for, one JSON object per line, found by job number.

{"job": 17, "hybrid": {"iterations": 5, "classical_s": 60, "quantum_s": 12, "parts": 4}}
{"job": 18, "gres": {"gpu": 2}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from qloom.errors import InputError
from qloom.lab.load.workload import Hybrid, LoadJob
from qloom.site import first_problem
from qloom.strategies import parse_strategy

STRICT = ConfigDict(extra="forbid", strict=False)


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
            told = _parse(line, f"{path}, line {place}")
            if told.job not in by_number:
                raise InputError(f"{path}, line {place}: the trace has no job {told.job}")
            by_number[told.job] = _applied(by_number[told.job], told, f"{path}, line {place}")
    return [by_number[job.number] for job in jobs]


def _parse(line: str, where: str) -> _Line:
    try:
        values: Any = json.loads(line)
        return TypeAdapter(_Line).validate_python(values)
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}") from None
    except ValueError:
        raise InputError(f"{where}: this is not JSON", hint='{"job": 17, "hybrid": {...}}') from None


def _applied(job: LoadJob, told: _Line, where: str) -> LoadJob:
    job = replace(job, gres=tuple(told.gres.items()))
    if told.hybrid is None:
        return job
    hybrid = Hybrid(**asdict(told.hybrid))
    if hybrid.parts > job.nodes:
        raise InputError(f"{where}: {hybrid.parts} parts on {job.nodes} nodes")
    if hybrid.strategy is not None:
        parse_strategy(hybrid.strategy)
    return replace(job, hybrid=hybrid, run_s=hybrid.run_s, limit_s=max(job.limit_s, hybrid.run_s))


def write_sidecar(path: Path, jobs: Iterable[LoadJob]) -> None:
    """What SWF cannot say of these jobs."""
    lines = []
    for job in jobs:
        told: dict[str, Any] = {"job": job.number}
        if job.hybrid is not None:
            told["hybrid"] = {name: value for name, value in asdict(job.hybrid).items() if value is not None}
        if job.gres:
            told["gres"] = dict(job.gres)
        if len(told) > 1:
            lines.append(json.dumps(told) + "\n")
    try:
        path.write_text("".join(lines))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
