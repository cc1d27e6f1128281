"""The Slurm jobs that a run holds: those of each lease, when they began and ended, and ceilings on what is held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from qloom.aio import TaskScope
from qloom.device import FINAL, Device, Status
from qloom.errors import AllocationEnded, NodeLost
from qloom.journal.event import Event, Record
from qloom.model import Payload
from qloom.site import Slurm
from qloom.slurm.endings import how_it_ended
from qloom.slurm.facts import ClusterFacts
from qloom.slurm.salloc import Salloc
from qloom.slurm.squeue import QueuedJob
from qloom.world import Clock, Lease, Request
from qloom.worlds.ceiling import Ceiling
from qloom.worlds.slurm.driver_job import DRIVER

RESUME = "what is done is kept: qloom resume"


class ChangeRecorder:
    """Writes events to the journal, unless one repeats what was written last about the same lease or job."""

    def __init__(self, record: Record | None) -> None:
        self._record = record
        self._last: dict[str, str] = {}  # lease or job -> the last event about it

    def __call__(self, about: str, event: Event) -> None:
        """Write an event about a lease, a request or a job."""
        if self._record is not None and self._last.get(about) != (text := repr(event)):
            self._last[about] = text
            self._record(event)


def engine_us(clock: Clock, observed_us: int, second: int | None) -> int | None:
    """When something was observed, moved into the whole second that Slurm names for it."""
    if second is None:
        return None
    begin_us = _begin_us(clock, second)
    return min(max(observed_us, begin_us), begin_us + 999_999)


def unobserved_us(clock: Clock, second: int | None) -> int | None:
    """When something happened that was not observed: the middle of the second that Slurm names for it."""
    return None if second is None else _begin_us(clock, second) + 500_000


def _begin_us(clock: Clock, second: int) -> int:
    return second * 1_000_000 - (time.time_ns() // 1000 - clock.now_us())


def allocation_ended(id: str, queued: QueuedJob | None, job: str) -> AllocationEnded:
    """The error of a job of the run whose allocation Slurm has ended: what happened, and what to do."""
    advice = f"{queued.state.what_to_do}; {RESUME}" if queued is not None and queued.state.what_to_do else RESUME
    return AllocationEnded(f"Slurm job {id} {how_it_ended(queued)}", job=job, hint=advice)


class Ceilings:
    """The ceilings of one run on node-hours and QPU-seconds; `stop` is called when one is reached."""

    def __init__(
        self, clock: Clock, slurm: Slurm, used_node_s: float, used_qpu_s: float, stop: Callable[[], None]
    ) -> None:
        hours, qpu_s = slurm.most_node_hours, slurm.most_qpu_s
        most_node_s = None if hours is None else hours * 3600
        self.nodes = Ceiling(clock, most_node_s, used_node_s, lambda: self._reach(f"{hours:g} node-hours"))
        self.qpus = Ceiling(clock, qpu_s, used_qpu_s, lambda: self._reach(f"{qpu_s:g} QPU-seconds"))
        self._reached: str | None = None
        self._stop = stop
        self._scope = TaskScope()
        self._doing: list[asyncio.Task[Any]] = []

    def _reach(self, most: str) -> None:
        self._reached = f"the run has held its ceiling of {most}"
        self._stop()
        for doing in self._doing:
            doing.cancel()

    async def while_there_is_room(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Work that is ended where it stands when a ceiling is reached: the driver's own job ends with its work."""
        self.require_room()
        doing = self._scope.start(begin())
        self._doing.append(doing)
        caller = asyncio.current_task()
        try:
            return await doing
        except asyncio.CancelledError:
            error = self.error()
            if error is None or (caller is not None and caller.cancelling()):
                raise
            raise error from None
        finally:
            self._doing.remove(doing)

    def error(self) -> AllocationEnded | None:
        """Why the run cannot go on, if a ceiling is reached."""
        hint = f"raise it in [slurm] of the site; {RESUME}"
        return None if self._reached is None else AllocationEnded(self._reached, hint=hint)

    def require_room(self) -> None:
        """Refuse to go on under a ceiling that is reached."""
        if (error := self.error()) is not None:
            raise error

    def close(self) -> None:
        """Forget the deadlines."""
        self.nodes.close()
        self.qpus.close()


class CountedDevice:
    """A device whose executions count against a ceiling, unless their job `holds` it: then that counts."""

    def __init__(self, device: Device, ceilings: Ceilings, holds: Callable[[str], bool]) -> None:
        self.description, self.outages_s = device.description, device.outages_s
        self.check, self.seconds, self.set_up_key = device.check, device.seconds, device.set_up_key
        self.find, self.result, self.state = device.find, device.result, device.state
        self.calibration, self.tasks, self.close = device.calibration, device.tasks, device.close
        self._device = device
        self._ceilings = ceilings
        self._holds = holds
        self._counted: dict[str, float] = {}  # task that is not over -> QPUs that it counts for

    def is_executing(self) -> bool:
        """Whether the device has a task that is not over."""
        return bool(self._counted)

    async def start(self, token: str, payload: Payload) -> str:
        """Hand a task over, if there is room under the ceilings."""
        self._ceilings.require_room()
        id = await self._device.start(token, payload)
        qpus = self._counted[id] = 0.0 if self._holds(payload.options["job"]) else 1.0
        self._ceilings.qpus.change(qpus)
        return id

    async def wait(self, id: str) -> Status:
        """Wait for a task; one that is on the device when a ceiling is reached is stopped and has failed."""
        try:
            status: Status = await self._ceilings.while_there_is_room(lambda: self._device.wait(id))
        except AllocationEnded as ended:  # as a status: a call that raises is taken for a device that is away
            await self.stop(id)
            return Status("failed", error=str(ended))
        if status.state in FINAL:
            self._uncount(id)
        return status

    async def stop(self, id: str) -> None:
        """End a task."""
        await self._device.stop(id)
        self._uncount(id)

    def _uncount(self, id: str) -> None:
        self._ceilings.qpus.change(-self._counted.pop(id, 0.0))


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
