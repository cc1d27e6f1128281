"""The Slurm jobs that a run holds: those of each lease, counted against the run's ceilings. It calls no program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from qloom.errors import NodeLost
from qloom.ports import Lease, Request
from qloom.slurm.facts import ClusterFacts
from qloom.slurm.salloc import Salloc
from qloom.slurm.squeue import QueuedJob
from qloom.worlds.slurm.ceiling import Ceilings
from qloom.worlds.slurm.driver_job import DRIVER


@dataclass
class LeaseJob:
    """One Slurm job of a lease: the first one, or one by which it has grown."""

    id: str
    nodes: list[str]
    qpu: str | None = None  # the job, or the component of a het job, that stands for the QPU
    end_s: int | None = None  # when its time limit ends it; None: never, or not known
    salloc: Salloc | None = None  # what holds it; None: the job that the driver itself lives in

    @property
    def is_het(self) -> bool:
        """Whether nodes and QPU came as components of one job."""
        return self.qpu is not None and self.qpu != self.id

    @property
    def classical(self) -> str:
        """The id of the component with the nodes, as `squeue` prints it."""
        return f"{self.id}+0" if self.is_het else self.id


class LeaseJobs:
    """The jobs of each lease. One that Slurm has taken away is no longer among them."""

    def __init__(self, ceilings: Ceilings, facts: ClusterFacts) -> None:
        self.driver: LeaseJob | None = None  # the job that the driver lives in: it ends with the driver
        self._jobs: dict[str, list[LeaseJob]] = {}  # by lease
        self._with_qpu: list[str] = []  # jobs of the run, once for each of their leases that has one
        self._ceilings = ceilings
        self._facts = facts

    def of(self, lease: str) -> list[LeaseJob]:
        """The jobs of a lease."""
        return list(self._jobs.get(lease, []))

    def all(self) -> list[LeaseJob]:
        """The jobs of all leases."""
        return [job for jobs in self._jobs.values() for job in jobs]

    def requested(self) -> list[LeaseJob]:
        """All of them but the one that the driver lives in."""
        return [job for job in self.all() if job is not self.driver]

    def with_node(self, lease: Lease, node: str) -> LeaseJob:
        """The job of a lease that a node belongs to; raises `NodeLost` if none does any more."""
        for job in self.of(lease.id):
            if node in job.nodes:
                return job
        raise NodeLost(f"node {node} is gone", job=lease.job)

    def remaining_s(self, lease: Lease) -> float | None:
        """Seconds until the time limit of the job that a lease began with; None if it has none."""
        first = next(iter(self.of(lease.id)), self.driver)
        return None if first is None or first.end_s is None else first.end_s - time.time()

    def add(self, request: Request, job: LeaseJob, shares: int) -> None:
        """Count a job of a new lease, or of one that has grown."""
        self._jobs.setdefault((request.lease or request).id, []).append(job)
        self._ceilings.nodes.change(len(job.nodes))
        if shares:
            self._with_qpu.append(request.job)
            self._ceilings.qpus.change(self._facts.qpus(request.device, shares))

    def remove(self, lease: Lease, job: LeaseJob) -> None:
        """Forget a job that was given back, or taken away."""
        if job in self.of(lease.id):
            self._jobs[lease.id].remove(job)
            self._ceilings.nodes.change(-len(job.nodes))
        lease.nodes = [node for node in lease.nodes if node not in job.nodes]

    def remove_lease(self, lease: Lease) -> None:
        """Forget a lease whose jobs have ended."""
        self._jobs.pop(lease.id, None)

    def clear(self) -> None:
        """Forget all of them."""
        self._jobs.clear()

    def remove_qpu(self, lease: Lease) -> None:
        """Count a lease's QPU no longer."""
        if lease.device is not None:
            self._with_qpu.remove(lease.job)
            self._ceilings.qpus.change(-self._facts.qpus(lease.device, lease.shares))
            lease.device, lease.shares = None, 0

    def has_qpu(self, job: str) -> bool:
        """Whether a job of the run, or the driver for it, holds a QPU, or a share of one, beyond its tasks."""
        return job in self._with_qpu or DRIVER in self._with_qpu

    def read_back(self, lease: Lease, job: LeaseJob, queued: Sequence[QueuedJob]) -> list[str]:
        """Take over the node list that Slurm has; returns the nodes that are no longer in it."""
        now = next((one.nodes for one in queued if one.id == job.classical and one.state.stage == "holds"), ())
        lost = [node for node in job.nodes if node not in now]
        job.nodes = [node for node in job.nodes if node in now]
        lease.nodes = [node for node in lease.nodes if node not in lost]
        self._ceilings.nodes.change(-len(lost))
        return lost
