"""A workload: jobs with a size, a time and an arrival; some of them hybrid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hybrid:
    """The phases of a hybrid job: `iterations` times classical work in `parts` tasks, then a quantum task."""

    iterations: int
    classical_s: float  # of one iteration, on all nodes of the job
    quantum_s: float  # of one iteration
    parts: int = 1  # tasks of a classical phase, on nodes / parts nodes each
    speculate: float = 0.0  # chance that work offered during the quantum phase is what comes next; 0: none is offered
    strategy: str | None = None  # None: the one of the run

    @property
    def run_s(self) -> float:
        """How long the job takes if it waits for nothing."""
        return self.iterations * (self.classical_s + self.quantum_s)


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One job of a workload, as a trace has it."""

    number: int
    submit_s: float
    run_s: float
    nodes: int
    limit_s: float
    project: int = 0
    partition: int = 0  # the first, the second, ... of the cluster
    gres: tuple[tuple[str, int], ...] = ()
    hybrid: Hybrid | None = None

    def at(self, submit_s: float) -> LoadJob:
        """The same job, submitted at another time."""
        return LoadJob(
            self.number, submit_s, self.run_s, self.nodes, self.limit_s,
            self.project, self.partition, self.gres, self.hybrid,
        )  # fmt: skip


def work_node_s(jobs: list[LoadJob]) -> float:
    """Node-seconds that the jobs would use if none of them waited."""
    return sum(job.nodes * job.run_s for job in jobs)
