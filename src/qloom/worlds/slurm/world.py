"""The world of a cluster under Slurm: a lease is one Slurm job, and one more for each time it has grown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from qloom.aio import run_to_end
from qloom.errors import AllocationEnded, JobError, NodeLost, TaskFailed
from qloom.journal.event import Event, Record
from qloom.journal.events import AllocationTaken, DriverReleased, DriverStarted, NodesLost, ResizeRefused, SlurmCalls
from qloom.model import Task, Work
from qloom.mpi.launch import require_mpi, run_ranks, srun
from qloom.ports import Lease, Request, World
from qloom.site import Site
from qloom.slurm.arguments import components, salloc
from qloom.slurm.client import Client
from qloom.slurm.endings import cancel, complete, finish, how_it_ended, wait_past_completing
from qloom.slurm.facts import ClusterFacts
from qloom.slurm.pace import Urgency
from qloom.slurm.salloc import Salloc
from qloom.slurm.squeue import QueuedJob
from qloom.slurm.tags import Tag
from qloom.worlds.checks import check_task
from qloom.worlds.emulated import EmulatedDevice
from qloom.worlds.process import WorkerDied
from qloom.worlds.realtime import RealClock
from qloom.worlds.slurm.ceiling import Ceilings, CountedDevice
from qloom.worlds.slurm.driver_job import DRIVER, DriverJob
from qloom.worlds.slurm.ends import engine_us, taken_away, unobserved_us
from qloom.worlds.slurm.held import Held
from qloom.worlds.slurm.parts import Part, StepWorkers
from qloom.worlds.slurm.watch import Watch
from qloom.worlds.workers import LocalWorkers, run_task, task_environment

_AT_ONCE = "hold all nodes from the start (workflow, offload, min_nodes)"
_APART = "qloom submit --driver beside leaves the driver's own job out"


@dataclass
class SlurmWorld(World):
    """Nodes of a partition, and QPUs that are gres or licences."""

    site: Site
    facts: ClusterFacts
    clock: RealClock
    tag: Tag
    worker_set_up: dict[str, Any]
    logs: Path | None = None  # none: they go when the run ends
    record: Record | None = None
    used_node_s: float = 0.0  # of the ceilings, before the run was resumed
    used_qpu_s: float = 0.0

    def __post_init__(self) -> None:
        slurm, facts = self.site.slurm, self.facts
        self.node_names = list(facts.nodes)
        qpus = tuple(replace(qpu, shares=facts.shares[qpu.name]) for qpu in self.site.qpus)
        self.site = replace(
            self.site,
            qpus=qpus,
            cpus_per_node=self.site.cpus_per_node or facts.cpus,
            memory_per_node_mb=self.site.memory_per_node_mb or facts.memory_mb,
        )
        self.client = Client(self.record, self.logs, slurm.most_calls_per_s)
        logs = self._logs = self.logs or self.client.directory
        self._local = LocalWorkers(self.clock, self.worker_set_up, logs, self.record)
        self._workers = StepWorkers(self.client, self.clock, self.worker_set_up, logs, slurm.python, self.record)
        self._asking: dict[str, tuple[Request, Salloc]] = {}
        self._noted: dict[str, str] = {}  # lease or job -> the last that the journal was told of it
        self._ceilings = Ceilings(self.clock, slurm, self.used_node_s, self.used_qpu_s, self._stop)
        self._held = Held(self._ceilings, facts)
        emulated = [EmulatedDevice(qpu, self.clock, self._local.get) for qpu in qpus]
        self.devices = [CountedDevice(device, self._ceilings, self._held.has_qpu) for device in emulated]
        self._leaked = False
        self._adopted: Part | None = None  # the job that the driver lives in
        away = None if slurm.licences else partial(self.client.is_away, slurm.quantum_partition)
        self._watch = Watch(self.client, slurm.poll_s, self._asking, self._held.parts, self._note, away)

    # Asking

    async def grant(self, request: Request) -> Lease | None:
        """Wait in Slurm's line for a new lease; workers start while the job gets going."""
        shares = self.facts.shares_of(request)
        granted = await self._ask(request, shares)
        if granted is None:
            return None
        part, start_us = granted
        device = request.device if shares else None
        return Lease(request.id, request.job, list(part.nodes), device, shares, start_us, part.id)

    def adopt(self, job: DriverJob) -> Lease:
        """The Slurm job that the driver lives in, as a lease: it counts from its start and ends with the driver."""
        part = self._adopted = job.part
        start_us = unobserved_us(self.clock, part.start_s)
        weight = round(1 / self.facts.cpus, 6) if job.core_of else None
        self._ceilings.nodes.change(weight or 0.0)
        if job.device is not None and job.device not in self.facts.shares:
            # A broker that only jobs know of has another name for it.
            job = replace(job, device=self.site.qpus[0].name)
        self._hold(Request(DRIVER, DRIVER, len(part.nodes), len(part.nodes), job.hold, job.device), part, job.shares)
        self._note(
            DRIVER,
            DriverStarted(
                nodes=[job.core_of] if job.core_of else list(part.nodes),
                weight=weight,
                device=job.device,
                hold=job.hold.value if job.device else None,
                engine_us=start_us,
                engine_id=part.id,
            ),
        )
        return Lease(DRIVER, DRIVER, list(part.nodes), job.device, job.shares, start_us, part.id)

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Wait for a second allocation, of as many nodes as there are by then; if somebody cancels it, for none."""
        lease = request.lease
        try:
            granted = await self._ask(request, 0)
        except AllocationEnded:
            self._ceilings.require_room()
            return ()
        if granted is None or lease is None:
            return ()
        part, lease.engine_us = granted
        lease.engine_id = part.id
        lease.nodes.extend(part.nodes)
        return tuple(part.nodes)

    def withdraw(self, request: Request) -> None:
        """Leave the line."""
        if request.id in self._asking:
            self._asking[request.id][1].withdraw()

    async def _ask(self, request: Request, shares: int) -> tuple[Part, int | None] | None:
        """Ask for one Slurm job; None if the request was withdrawn."""
        self._ceilings.require_room()
        asked = self._request(request, shares)
        self._asking[request.id] = (request, asked)
        try:
            job_id = await asked.granted()
            if job_id is None:
                self._ceilings.require_room()
                return None
            return await self._take(request, shares, job_id, asked)
        finally:
            del self._asking[request.id]

    async def _take(self, request: Request, shares: int, job_id: str, hold: Salloc) -> tuple[Part, int | None]:
        """What was granted, as Slurm tells it."""
        observed_us = self.clock.now_us()
        qpu = (f"{job_id}+1" if request.least_nodes else job_id) if shares else None
        part = Part(job_id, [], qpu, hold=hold)
        first = await wait_past_completing(self.client, part.classical)
        if first is None or first.state.stage != "holds":
            await hold.close()
            raise self._ended(part, first, request.job, (request.lease or request).id)
        part.nodes = list(first.nodes) if request.least_nodes else []
        part.end_s = first.end_s
        return self._hold(request, part, shares), engine_us(self.clock, observed_us, first.start_s)

    def _request(self, request: Request, shares: int) -> Salloc:
        name = self.tag.job_name(request.id)
        self._watch.note(name)
        before = [part.id for part in self._held.of(request.after.id)] if request.after is not None else []
        rest_s = self._rest_s(request.lease) if request.lease is not None else None
        words = salloc(components(self.site, request, shares, rest_s), name, self.tag.comment, before)
        return Salloc(self.client, words, name, lambda: request.eligible)

    def _rest_s(self, lease: Lease) -> float | None:
        """How long what a lease began with will still be there; None if that has no end."""
        first = next(iter(self._held.of(lease.id)), self._adopted)
        return None if first is None or first.end_s is None else first.end_s - time.time()

    def _hold(self, request: Request, part: Part, shares: int) -> Part:
        """A part of a lease is there: it counts, and its workers start."""
        self._held.add(request, part, shares)
        for node in part.nodes:
            self._workers.begin(part, node)
        return part

    # Giving back

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> int | None:
        """End the jobs that are given back whole, and shrink those of which nodes are kept."""
        whole: list[Part] = []
        for part in self._held.of(lease.id):
            dropped = [node for node in part.nodes if node in nodes]
            if not dropped:
                continue
            if len(dropped) == len(part.nodes) and part.qpu is None:
                whole.append(part)
                continue
            await self._workers.close(part, dropped)
            await self._shrink(lease, part, dropped)
        return await self._end(lease, whole)

    async def _shrink(self, lease: Lease, part: Part, dropped: list[str]) -> None:
        """A het job, or one without accounting, cannot be resized: then the nodes stay."""
        kept = [node for node in part.nodes if node not in dropped]
        if not part.het and kept:
            answer = await self.client.call("scontrol", "update", f"JobId={part.id}", f"NodeList={','.join(kept)}")
            if answer.code != 0:
                refused = ResizeRefused(lease=lease.id, engine_id=part.id, complaint=answer.complaint)
                self._note(lease.id, refused)
            gone = self._held.read_back(lease, part, await self.client.jobs(part.id))
            if part is self._adopted and gone:
                self._note(DRIVER, DriverReleased(nodes=gone))

    async def drop_qpu(self, lease: Lease) -> int | None:
        """End the component that stands for the QPU, or the job that is nothing else."""
        holders = [part for part in self._held.of(lease.id) if part.qpu is not None]
        device = lease.device
        self._held.remove_qpu(lease)
        if not holders:
            return None
        (part,) = holders
        qpu, part.qpu = part.qpu, part.qpu if part.het else None
        if not part.nodes:
            self._held.remove(lease, part)
        began_us = self.clock.now_us()
        if qpu == part.id and part.hold is not None:
            ended_us = await self._end_jobs(lease, [part])
        else:
            end_component = cancel if lease.failed else finish
            ended_us = engine_us(self.clock, began_us, await end_component(self.client, [str(qpu)]))
        if part is self._adopted:
            self._note(DRIVER, DriverReleased(device=device, engine_us=ended_us))
        return ended_us

    async def free(self, lease: Lease) -> int | None:
        """End all jobs of a lease."""
        lease.ended = True  # Slurm may start what comes after it before it has told us of the end
        self._held.remove_qpu(lease)
        ended_us = await self._end(lease, self._held.of(lease.id))
        self._held.parts.pop(lease.id, None)
        return ended_us

    async def _end(self, lease: Lease, parts: list[Part]) -> int | None:
        if not parts:
            return None
        await asyncio.gather(*(self._workers.close(part, part.nodes) for part in parts))
        ended_us = await self._end_jobs(lease, parts)
        for part in parts:
            self._held.remove(lease, part)
        return ended_us

    async def _end_jobs(self, lease: Lease, parts: list[Part]) -> int | None:
        """End whole jobs, well unless the job that they were for has failed; Slurm's own time of the last end."""
        began_us = self.clock.now_us()
        if lease.failed:
            end_s = await cancel(self.client, [part.id for part in parts])
            await _close(parts)
        else:
            sallocs = [part.hold for part in parts if part.hold is not None]
            end_s = await complete(self.client, [part.id for part in parts], sallocs)
        return engine_us(self.clock, began_us, end_s)

    # Working

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Any:
        """Run a task in the worker of its first node, or over the nodes as a step of its own if it uses MPI."""
        return await self._ceilings.while_there_is_room(lambda: self._execute(nodes, work, lease))

    async def _execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Any:
        part = self._held.part_with(lease, nodes[0])
        if work.task.ranks:
            return await self._run_ranks(lease, part, nodes, work)
        beginning = self._workers.begin(part, nodes[0])
        try:
            worker = await asyncio.shield(beginning)
            return await run_task(worker, nodes, work)
        except asyncio.CancelledError:
            if beginning.done() and not beginning.cancelled() and beginning.exception() is None:
                worker = beginning.result()
                if not worker.alive:
                    await run_to_end(worker.gone())
            raise
        except WorkerDied as error:
            failed = TaskFailed(f"task {work.task.name} on {nodes[0]} {error}", job=work.job)
            raise await self._why(lease, part, nodes, failed) from None

    async def _run_ranks(self, lease: Lease, part: Part, nodes: Sequence[str], work: Work) -> Any:
        if any(node not in part.nodes for node in nodes):
            raise TaskFailed(
                f"task {work.task.name} uses MPI on {len(nodes)} nodes, which came as several Slurm jobs",
                job=work.job,
                hint=f"a step cannot span jobs: {_AT_ONCE if self._adopted is None else _APART}",
            )
        group = 0 if part.het else None
        launch = srun(work.task.ranks, nodes, part.id, het_group=group, python=self.site.slurm.python)
        log = self._logs / f"{part.id}.{nodes[0]}.log"
        environment = task_environment(nodes, work)
        await self.client.turn(Urgency.USE)
        self.client.calls += 1
        try:
            return await run_ranks(work.task, launch, self.worker_set_up, environment, log, self._logs)
        except TaskFailed as error:
            raise await self._why(lease, part, nodes, error) from None

    async def _why(self, lease: Lease, part: Part, nodes: Sequence[str], failed: TaskFailed) -> JobError:
        """Why a task has ended so: its allocation was taken away, a node failed, or (`failed`) by itself."""
        row = await wait_past_completing(self.client, part.classical)
        if row is None or row.state.stage != "holds":
            self._held.remove(lease, part)
            await _close([part])
            node_failed = row is not None and row.state.name == "NODE_FAIL"
            if node_failed:
                return NodeLost(failed.message, job=lease.job)
            return self._ended(part, row, lease.job, lease.id)
        lost = self._held.read_back(lease, part, [row])
        if not lost and "node failure" in failed.message.lower():  # srun knows before the controller says so
            lost = self._held.read_back(lease, part, [replace(row, nodes=tuple(set(row.nodes) - {nodes[0]}))])
        if not any(node in lost for node in nodes):
            return failed
        self._note(part.id, NodesLost(lease=lease.id, engine_id=part.id, nodes=lost))
        return NodeLost(f"node {', '.join(lost)} failed under a task: {failed.message}", job=lease.job)

    def _ended(self, part: Part, row: QueuedJob | None, job: str, lease: str) -> AllocationEnded:
        self._note(part.id, AllocationTaken(engine_id=part.id, lease=lease, how=how_it_ended(row)))
        return self._ceilings.error() or taken_away(part, row, job)

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        check_task(task, self.site)
        require_mpi(task, "srun")

    def _note(self, about: str, event: Event) -> None:
        """Write an event to the journal, unless it says again what was noted last `about` the same."""
        if self.record is not None and self._noted.get(about) != (said := repr(event)):
            self._noted[about] = said
            self.record(event)

    def _stop(self) -> None:
        """The run has used up what it may hold: take all that it holds away, but for the driver's own job."""
        for _, asked in self._asking.values():
            asked.withdraw()
        if ids := [part.id for part in self._requested_parts()]:
            self._stopping = asyncio.ensure_future(self.client.cancel(*ids))

    # The end

    def nodes_are_short(self) -> bool:
        """Whether another job of this run waits for nodes, other than for spare work."""
        return any(asked.least_nodes and asked.eligible and not asked.spare for asked, _ in self._asking.values())

    def executes_quantum(self) -> bool:
        """Whether a QPU of the driver's own executes a task; one of a broker outlives the driver."""
        return any(device.executing for device in self.devices)

    def who_waits(self) -> list[str]:
        """Who stands in line, in plain words."""
        return [f"job {request.job} waits in Slurm as {asked.name}" for request, asked in self._asking.values()]

    def _requested_parts(self) -> list[Part]:
        """All that is held, but for the job that the driver lives in: that ends with the driver."""
        return [part for part in self._held.all() if part is not self._adopted]

    def require_all_free(self) -> None:
        """After a run: whatever is still held was leaked."""
        if self._leaked:
            raise JobError("the run is over and something is still held or asked for", hint="this is a bug in qloom")

    async def close(self) -> None:
        """Cancel what is left, and end all workers."""
        await self._watch.close()
        self._ceilings.close()
        parts = self._requested_parts()
        self._leaked = bool(parts or self._asking)
        await asyncio.gather(*(self._workers.close(part, part.nodes) for part in self._held.all()))
        if parts:
            await self.client.cancel(*(part.id for part in parts))
            await _close(parts)
        self._held.parts.clear()
        await self._watch.release_strays()
        self._local.close()
        self.client.close()
        if self.client.calls:
            self._note("run", SlurmCalls(count=self.client.calls))


async def _close(parts: Sequence[Part]) -> None:
    """End what holds jobs that have ended otherwise."""
    await asyncio.gather(*(part.hold.close() for part in parts if part.hold is not None))
