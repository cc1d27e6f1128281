"""What a run holds of Slurm: the jobs of each lease, counted against the run's ceilings."""

from __future__ import annotations

from collections.abc import Sequence

from qloom.errors import NodeLost
from qloom.ports import Lease, Request
from qloom.slurm.facts import ClusterFacts
from qloom.slurm.squeue import QueuedJob
from qloom.worlds.slurm.ceiling import Ceilings
from qloom.worlds.slurm.driver_job import DRIVER
from qloom.worlds.slurm.parts import Part


class Held:
    """The parts of each lease. What Slurm has taken away is no longer among them."""

    def __init__(self, ceilings: Ceilings, facts: ClusterFacts) -> None:
        self.parts: dict[str, list[Part]] = {}  # by lease
        self._with_qpu: list[str] = []  # jobs, once for each of their leases that has one
        self._ceilings = ceilings
        self._facts = facts

    def of(self, lease: str) -> list[Part]:
        """The parts of a lease."""
        return list(self.parts.get(lease, []))

    def all(self) -> list[Part]:
        """The parts of all leases."""
        return [part for parts in self.parts.values() for part in parts]

    def part_with(self, lease: Lease, node: str) -> Part:
        """The part of a lease that a node belongs to."""
        for part in self.of(lease.id):
            if node in part.nodes:
                return part
        raise NodeLost(f"node {node} is gone", job=lease.job)

    def add(self, request: Request, part: Part, shares: int) -> None:
        """A part of a new lease, or of one that has grown."""
        self.parts.setdefault((request.lease or request).id, []).append(part)
        self._ceilings.nodes.change(len(part.nodes))
        if shares:
            self._with_qpu.append(request.job)
            self._ceilings.qpus.change(self._facts.qpus(request.device, shares))

    def remove(self, lease: Lease, part: Part) -> None:
        """A part that was given back, or taken away."""
        if part in self.of(lease.id):
            self.parts[lease.id].remove(part)
            self._ceilings.nodes.change(-len(part.nodes))
        lease.nodes = [node for node in lease.nodes if node not in part.nodes]

    def remove_qpu(self, lease: Lease) -> None:
        """The lease has no QPU any more."""
        if lease.device is not None:
            self._with_qpu.remove(lease.job)
            self._ceilings.qpus.change(-self._facts.qpus(lease.device, lease.shares))
            lease.device, lease.shares = None, 0

    def has_qpu(self, job: str) -> bool:
        """Whether a job, or the driver for it, holds a QPU, or a share of one, beyond its tasks."""
        return job in self._with_qpu or DRIVER in self._with_qpu

    def read_back(self, lease: Lease, part: Part, rows: Sequence[QueuedJob]) -> list[str]:
        """The node list is what Slurm says it is; returns what is no longer in it."""
        now = next((row.nodes for row in rows if row.id == part.classical and row.state.stage == "holds"), ())
        lost = [node for node in part.nodes if node not in now]
        part.nodes = [node for node in part.nodes if node in now]
        lease.nodes = [node for node in lease.nodes if node not in lost]
        self._ceilings.nodes.change(-len(lost))
        return lost
