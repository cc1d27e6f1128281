"""Where a workload comes from: a trace with its side-car, or the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from qloom.errors import InputError
from qloom.lab.load.model import lublin
from qloom.lab.load.sidecar import read_sidecar
from qloom.lab.load.swf import read_swf
from qloom.lab.load.workload import LoadJob


@dataclass(frozen=True)
class Source:
    """A trace, or so many jobs of the model. What is missing is drawn from a seed."""

    trace: Path | None = None
    sidecar: Path | None = None
    jobs: int | None = None  # of a trace: only the first so many

    def __post_init__(self) -> None:
        if self.sidecar is not None and self.trace is None:
            raise InputError("a side-car belongs to a trace", hint="name the trace, too")
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"a workload needs at least 1 job, not {self.jobs}")

    def read(self, nodes: int, seed: int) -> list[LoadJob]:
        """The jobs, for a cluster of so many nodes."""
        if self.trace is None:
            return lublin(self.jobs or 2000, nodes, Random(f"{seed} workload"))
        jobs = read_swf(self.trace, Random(f"{seed} estimates"))
        if self.sidecar is not None:
            jobs = read_sidecar(self.sidecar, jobs)
        return jobs[: self.jobs]
