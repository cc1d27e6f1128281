"""What came of one job, rigid or hybrid."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from qloom.errors import InputError

SHORT_S = 10.0  # shorter jobs count as this long in the bounded slowdown (Feitelson)


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


IN_ORDER = attrgetter("submit_s", "number")  # as they were submitted
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
