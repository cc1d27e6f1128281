"""The Standard Workload Format: one job per line, 18 numbers, -1 where something is not known.

Field numbers are those of the format's definition (Chapin et al. 1999). Processors are read as nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from random import Random

from qloom.errors import InputError
from qloom.lab.load.estimates import estimate_s
from qloom.lab.load.records import JobRecord
from qloom.lab.load.workload import LoadJob

FIELDS = 18
COMPLETED, FAILED, CANCELLED = 1, 0, 5


def read_swf(path: Path, rng: Random) -> list[LoadJob]:
    """The jobs of a trace, by time of submission. Missing requested times are drawn (see `estimates.py`)."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot read the trace {path}: {error.strerror}") from None
    jobs = []
    for place, line in enumerate(text.splitlines(), 1):
        content = line.partition(";")[0].split()
        if content and (job := _job(content, f"{path}, line {place}", rng)) is not None:
            jobs.append(job)
    if not jobs:
        raise InputError(f"{path} has no job that ran", hint="a trace has one line of 18 numbers for each job")
    seen: dict[int, bool] = {}
    for job in jobs:
        if job.number in seen:
            raise InputError(f"{path}: job {job.number} is there twice")
        seen[job.number] = True
    return sorted(jobs, key=lambda job: job.submit_s)


def _job(content: list[str], where: str, rng: Random) -> LoadJob | None:
    if len(content) != FIELDS:
        raise InputError(f"{where}: {len(content)} fields, not {FIELDS}", hint="see the Standard Workload Format")
    try:
        values = [float(word) for word in content]
    except ValueError:
        wrong = next(word for word in content if not _is_number(word))
        raise InputError(f"{where}: {wrong!r} is not a number") from None
    if not all(math.isfinite(value) for value in values):
        raise InputError(f"{where}: a number that is not finite")
    number, submit_s, run_s, status = int(values[0]), values[1], values[3], int(values[10])
    nodes = int(values[7]) if values[7] > 0 else int(values[4])
    if submit_s < 0:
        raise InputError(f"{where}: job {number} has no time of submission")
    if run_s <= 0 or nodes <= 0 or status == CANCELLED:
        return None  # it never ran
    limit_s = values[8] if values[8] > 0 else estimate_s(run_s, rng)
    project = max(0, int(values[12] if values[12] >= 0 else values[11]))
    partition = max(0, int(values[15]) - 1)
    return LoadJob(number, submit_s, run_s, nodes, limit_s, project, partition)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def write_swf(path: Path, jobs: Iterable[LoadJob], computer: str) -> None:
    """A workload that has not been run yet: waits are not known."""
    lines = [
        _line(job.number, job.submit_s, -1, job.run_s, job.nodes, job.limit_s, -1, job.project, job.partition)
        for job in jobs
    ]
    _write(path, computer, lines)


def write_results_swf(path: Path, records: Iterable[JobRecord], computer: str) -> None:
    """What came of each job. For a hybrid job, the wait is until its first grant, the run time all after that."""
    status = {"done": COMPLETED, "timeout": FAILED, "failed": FAILED}
    lines = [
        _line(
            record.number, record.submit_s, record.wait_s, record.end_s - record.start_s, record.nodes,
            record.limit_s, status[record.state], record.project, record.partition,
        )
        for record in records
    ]  # fmt: skip
    _write(path, computer, lines)


def _line(
    number: int, submit_s: float, wait_s: float, run_s: float, nodes: int, limit_s: float, status: int,
    project: int, partition: int,
) -> str:  # fmt: skip
    fields = (number, _text(submit_s), _text(wait_s), _text(run_s), nodes, -1, -1, nodes, _text(limit_s), -1, status)
    return " ".join(map(str, (*fields, project, project, -1, -1, partition + 1, -1, -1)))


def _text(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _write(path: Path, computer: str, lines: list[str]) -> None:
    header = ["; Version: 2.2", f"; Computer: {computer}", "; Note: made by qloom", f"; MaxJobs: {len(lines)}"]
    try:
        path.write_text("\n".join([*header, *lines]) + "\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
