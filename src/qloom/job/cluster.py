"""The cluster as one job sees it: asks the world for allocations, runs work on them, keeps the record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from qloom.aio import run_to_end
from qloom.broker.port import BrokerPort, Session
from qloom.errors import AllocationEnded, JobError, NeedError, QloomError, TaskFailed
from qloom.job.allocation import JobAllocation, Ticket
from qloom.job.spare import SparePool
from qloom.job.unused import UnusedRule
from qloom.journal.events import Granted, QueuedAhead, Released, Requested, TaskEnded, TaskStarted, Withdrawn
from qloom.journal.file import Recorder
from qloom.model import Need, QpuHold, QuantumWork, Work
from qloom.ports import Allocation, Cluster, Lease, Request, World


class JobCluster(Cluster):
    """One job's way to nodes and QPUs."""

    def __init__(self, world: World, broker: BrokerPort, recorder: Recorder) -> None:
        self.world = world
        self.record = recorder.record
        self.spare = SparePool()
        self.allocations: list[JobAllocation] = []
        self._line: list[Ticket] = []  # required work for whichever allocation has idle nodes first
        self._gives_way = False  # no spare work is begun while somebody waits for nodes
        self._broker = broker
        self._recorder = recorder
        self._requests_made = 0
        self._opening: dict[str, asyncio.Future[Session]] = {}
        self.unused = UnusedRule(world.clock, lambda: self.allocations)
        self.quantum_out = 0  # quantum tasks of the job that are queued or execute
        self.quantum_done_us = 0  # when the last of them was done

    def note_failure(self) -> None:
        """The job has failed or was interrupted: what it holds is given back as such."""
        for allocation in self.allocations:
            allocation.lease.failed = True

    async def allocate(
        self,
        need: Need,
        within_s: float | None = None,
        *,
        spare: bool = False,
        reason: str | None = None,
        after: Allocation | None = None,
    ) -> JobAllocation | None:
        """Wait in line for all that is needed; the QPU's session is opened as soon as the lease is there."""
        if need.nodes > len(self.world.node_names):
            raise NeedError(
                f"{need.nodes} nodes were asked for and there are {len(self.world.node_names)}",
                job=self._recorder.job,
                hint="ask for fewer, or give the site more with --nodes",
            )
        request = self.request(need.nodes, need.nodes, need.qpu)
        request.spare = spare
        before = next((held for held in self.allocations if held is after), None)  # none: it has ended already
        if before is None:
            self._record_request(request, reason)
        else:
            request.after = before.lease
            self._record_ahead(request, before, reason)
        cancel = None
        if within_s is not None:
            cancel = self.world.clock.deadline(within_s, lambda: self._withdraw(request))
        granting = asyncio.ensure_future(self._grant(request, before))
        try:
            return await asyncio.shield(granting)
        except asyncio.CancelledError:
            self._withdraw(request)
            await run_to_end(self._give_back(granting))
            raise
        finally:
            if cancel is not None:
                cancel()

    async def _give_back(self, granting: asyncio.Future[JobAllocation | None]) -> None:
        """A task of its own, since whoever asked may be cancelled more than once."""
        with suppress(QloomError):  # then nothing was granted
            if (allocation := await granting) is not None:
                await allocation.release()

    def _record_request(self, request: Request, reason: str | None = None) -> None:
        self.record(
            Requested(
                lease=request.id,
                nodes=request.least_nodes,
                device=request.device,
                hold=request.qpu.value,
                spare=request.spare,
                reason=reason,
            )
        )

    def _record_ahead(self, request: Request, after: JobAllocation, reason: str | None) -> None:
        self.record(
            QueuedAhead(
                lease=request.id,
                nodes=request.least_nodes,
                device=request.device,
                hold=request.qpu.value,
                spare=request.spare,
                after=after.lease.id,
                reason=reason,
            )
        )

    async def _grant(self, request: Request, before: JobAllocation | None) -> JobAllocation | None:
        lease = await (self._wait_in_line(request) if before is None else self._grant_after(before, request))
        self._record_grant(request, lease)
        if lease is None:
            return None
        try:
            session = await self._open_session(request, lease.device, lease.engine_id) if lease.device else None
        except BaseException as failure:
            engine_us = await self.world.free(lease)  # nobody else knows of it yet
            self.record(Released(lease=lease.id, engine_us=engine_us))
            if isinstance(failure, asyncio.CancelledError):  # nobody cancels this one: the request was withdrawn
                return None
            raise
        return JobAllocation(self, lease, session)

    async def _wait_in_line(self, request: Request) -> Lease | None:
        with self.unused.in_line(request):
            return await self.world.grant(request)

    def _record_grant(self, request: Request, lease: Lease | None) -> None:
        if lease is None:
            self.record(Withdrawn(lease=request.id))
            return
        self.record(
            Granted(
                lease=lease.id,
                nodes=list(lease.nodes),
                device=lease.device,
                hold=request.qpu.value if lease.device else None,
                shares=lease.shares or None,
                waited_for=request.waited_for,
                engine_us=lease.engine_us,
                engine_id=lease.engine_id,
            )
        )

    async def ask_again(self, request: Request) -> Lease | None:
        """Wait in line for the nodes of an allocation that were given back; None if the request is withdrawn."""
        self._record_request(request)
        lease = await self._wait_in_line(request)
        self._record_grant(request, lease)
        return lease

    async def _grant_after(self, before: JobAllocation, request: Request) -> Lease | None:
        """The same for a request that comes after an allocation: once that has ended, the journal has it in line."""
        granting = asyncio.ensure_future(self.world.grant(request))
        either: list[asyncio.Future[Any]] = [granting, before.released]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        withdrawn_or_failed = granting.done() and (granting.exception() is not None or granting.result() is None)
        if not withdrawn_or_failed:
            await asyncio.wait([before.released])  # an engine may grant it before we have noted the end of the other
            self._record_request(request)
        with self.unused.in_line(request):
            return await granting

    async def _open_session(self, request: Request, device: str, engine_id: str | None) -> Session:
        """A broker that other runs use too may let it wait for longer than the lease took."""
        asked = self._broker.open_session(device, request.qpu, self._recorder.job, engine_id)
        opening = asyncio.ensure_future(asked)
        self._opening[request.id] = opening
        try:
            return await opening
        finally:
            del self._opening[request.id]

    def _withdraw(self, request: Request) -> None:
        """Leave the line, the world's or the broker's."""
        self.world.withdraw(request)
        if (opening := self._opening.get(request.id)) is not None:
            opening.cancel()

    def request(
        self, least_nodes: int, most_nodes: int, qpu: QpuHold = QpuHold.TASK, lease: Lease | None = None
    ) -> Request:
        """A wish with a new id; a QPU is chosen for it if it wants one."""
        self._requests_made += 1
        device = self._broker.choose(None) if qpu is not QpuHold.TASK else None
        name = f"{self._recorder.job}.{self._requests_made}"
        return Request(name, self._recorder.job, least_nodes, most_nodes, qpu, device, lease)

    @property
    def session(self) -> Session | None:
        """The hold on a QPU that the job has now, in whichever allocation."""
        for allocation in self.allocations:
            if allocation.session is not None:
                return allocation.session
        return None

    def begin_quantum(self, work: QuantumWork) -> None:
        """A quantum task of the job is out."""
        self.unused.runs(work.id)
        self.quantum_out += 1

    def end_quantum(self) -> None:
        """A quantum task of the job has been answered, has failed or was cancelled."""
        self.quantum_out -= 1
        self.quantum_done_us = self.world.clock.now_us()
        self.unused.look()

    def run(self, work: Work) -> asyncio.Future[Any]:
        """Take work on for whichever allocation first has enough idle nodes. Cancelling the future kills the task."""
        ticket = Ticket(work, self._abandon)
        self._line.append(ticket)
        self._dispatch()
        if ticket in self._line:
            parked = [held for held in self.allocations if held.is_parked and held.size >= work.task.nodes]
            for held in parked[:1]:
                held.come_back()
        return ticket.done

    def _abandon(self, ticket: Ticket) -> None:
        if ticket in self._line:
            self._line.remove(ticket)

    def take(self, idle: int) -> Ticket | None:
        """The first required work that so many idle nodes can run."""
        for ticket in self._line:
            if ticket.work.task.nodes <= idle:
                self._line.remove(ticket)
                return ticket
        return None

    @property
    def waiting(self) -> Sequence[Work]:
        """Required work that no node runs yet."""
        return [ticket.work for ticket in self._line]

    @property
    def spare_waiting(self) -> Sequence[Work]:
        """Spare work that no node runs yet."""
        return self.spare.waiting

    @property
    def spare_running(self) -> int:
        """How many pieces of spare work run now."""
        return self.spare.running

    def fill_idle_nodes(self, spare: Sequence[Work], *, most: int | None = None, give_way: bool = False) -> None:
        """Run these on nodes that are held but idle."""
        self.spare.most, self._gives_way = most, give_way
        for work in spare:
            self.spare.register(work)
        self._dispatch()

    def drop_spare(self, nodes: int) -> None:
        """Give up spare work that nobody waits for, on so many nodes."""
        for allocation in list(self.allocations):
            nodes -= allocation.drop_spare(nodes)

    def take_spare(self) -> Work | None:
        """The next piece of spare work for an idle node."""
        return None if self._gives_way and self.world.nodes_are_short() else self.spare.take()

    def _dispatch(self) -> None:
        for allocation in list(self.allocations):
            allocation.dispatch()

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease, spare: bool = False) -> Any:
        """Run a task in the world, with its beginning and its end in the journal."""
        self.unused.runs(work.id)
        self.record(TaskStarted(work=work.id, name=work.task.name, nodes=list(nodes), spare=spare))
        try:
            ran = await self.world.execute(nodes, work, lease)
            kept = self._recorder.keep(ran.result)
        except asyncio.CancelledError:
            self.record(TaskEnded(work=work.id, state="dropped"))
            raise
        except Exception as error:
            failure: JobError = (
                error
                if isinstance(error, TaskFailed | AllocationEnded)
                else TaskFailed(f"task {work.task.name}: {error}")
            )
            failure.job = work.job
            self.record(TaskEnded(work=work.id, state="failed", error=failure.message))
            self.unused.waits(work.id)  # whoever asked for it may have it run again
            raise failure from None
        self.record(TaskEnded(work=work.id, state="done", result=kept, seconds=ran.seconds))
        return ran.result

    async def close(self) -> None:
        """Give back whatever is still held."""
        self.spare.clear()
        for allocation in list(self.allocations):
            await allocation.release()
