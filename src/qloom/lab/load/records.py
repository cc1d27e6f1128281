"""What became of each job, rigid or hybrid, and the formats that it is kept in: CSV, and SWF as traces are.

The Standard Workload Format has one job per line, 18 numbers, -1 where something is not known. Field numbers are
those of the format's definition (Chapin et al. 1999). Processors are read as nodes.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import NamedTuple

from qloom.errors import InputError
from qloom.lab.load.workload import LoadJob, estimate_s

SHORT_S = 10.0  # shorter jobs count as this long in the bounded slowdown (Feitelson)
IN_ORDER = attrgetter("submit_s", "number")  # as they were submitted
FIELDS = 18
COMPLETED, FAILED, CANCELLED = 1, 0, 5


class JobRecord(NamedTuple):
    """One row of the results. A tuple, since a run may have millions."""

    number: int
    kind: str  # "rigid" | "hybrid"
    strategy: str  # "" for a rigid job
    project: int
    partition: int
    nodes: int
    limit_s: float
    run_s: float  # how long it takes if it waits for nothing
    submit_s: float
    start_s: float  # first grant
    end_s: float
    state: str  # "done" | "timeout" | "failed"
    requeues: int = 0
    node_s_held: float = 0.0
    node_s_busy: float = 0.0
    qpu_s_held: float = 0.0
    qpu_s_busy: float = 0.0
    wasted_node_s: float = 0.0  # spare work that was dropped or never asked for
    energy_j: float = 0.0

    @property
    def wait_s(self) -> float:
        """Until the first grant."""
        return self.start_s - self.submit_s

    @property
    def turnaround_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s

    @property
    def bounded_slowdown(self) -> float:
        """How many times longer than alone; very short jobs count as 10 s."""
        return max(1.0, self.turnaround_s / max(self.run_s, SHORT_S))


COLUMNS = [*JobRecord._fields, "wait_s", "turnaround_s", "bounded_slowdown"]


def write_csv(path: Path, records: Iterable[JobRecord]) -> None:
    """All that is known of each job."""
    try:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for record in records:
                values = (getattr(record, name) for name in COLUMNS)
                writer.writerow(round(value, 6) if isinstance(value, float) else value for value in values)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def read_swf(path: Path, rng: Random) -> list[LoadJob]:
    """The jobs of a trace, by time of submission. Missing requested times are drawn (see `estimate_s`)."""
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
    """The records of jobs. For a hybrid job, the wait is until its first grant, the run time all after that."""
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
