"""The cluster as one job sees it: asks the world for allocations, runs work on them, keeps the record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from qloom.aio import TaskScope, outcome_of, run_to_end
from qloom.broker.port import BrokerPort, Session
from qloom.errors import NeedError, QloomError
from qloom.job.allocation import JobAllocation
from qloom.job.devices import DeviceWish
from qloom.job.requests import JobRequests, answered, queued_ahead, requested
from qloom.job.spare import SparePool
from qloom.job.task_runs import TaskExecutor, TaskRun
from qloom.job.unused import UnusedRule
from qloom.journal.events import Released
from qloom.journal.file import Recorder
from qloom.model import Need, Payload, QpuHold, QuantumWork, Work
from qloom.ports import Allocation, Cluster
from qloom.world import Request, World


class JobCluster(Cluster):
    """One job's way to nodes and QPUs."""

    def __init__(self, world: World, broker: BrokerPort, recorder: Recorder) -> None:
        self.world = world
        self.record = recorder.record
        self.spare = SparePool()
        self.allocations: list[JobAllocation] = []
        self._line: list[TaskRun] = []  # required work for whichever allocation has idle nodes first
        self._gives_way = False  # no spare work is begun while somebody waits for nodes
        self._broker = broker
        self._recorder = recorder
        self.tasks = TaskScope()
        self.unused = UnusedRule(world.clock, lambda: [held.parking for held in self.allocations])
        self.requests = JobRequests(world, broker, recorder, self.unused, self.tasks)
        self.executor = TaskExecutor(world, recorder, self.unused, self.tasks)
        self.wish = DeviceWish(broker)
        self._taking: dict[str, asyncio.Lock] = {}  # device -> held while the job waits for it
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
        """Wait in line for all that is needed; the QPU's session is opened as soon as the lease is there.

        Which QPU that is, and when it is left out, is said in `devices.py`.
        """
        device = self.wish.device() if need.qpu is not QpuHold.TASK else None
        if device is not None and need.nodes and self.wish.can_do_without(device):
            device = None
        return await self._allocate(need, device, within_s, spare=spare, reason=reason, after=after)

    async def _allocate(
        self,
        need: Need,
        device: str | None,
        within_s: float | None = None,
        *,
        spare: bool = False,
        reason: str | None = None,
        after: Allocation | None = None,
    ) -> JobAllocation | None:
        if need.nodes > len(self.world.node_names):
            raise NeedError(
                f"{need.nodes} nodes were asked for and there are {len(self.world.node_names)}",
                job=self._recorder.job,
                hint="ask for fewer, or give the site more with --nodes",
            )
        request = self.requests.new(need.nodes, need.nodes, need.qpu if device is not None else QpuHold.TASK, device)
        request.spare = spare
        before = next((held for held in self.allocations if held is after), None)  # none: it has ended already
        if before is None:
            self.record(requested(request, reason))
        else:
            request.after = before.lease
            self.record(queued_ahead(request, before.lease, reason))
        cancel = None
        if within_s is not None:
            cancel = self.world.clock.deadline(within_s, lambda: self.requests.withdraw(request))
        granting = self.tasks.start(self._grant(request, before, need.qpu))
        try:
            return await outcome_of(granting)
        except asyncio.CancelledError:
            self.requests.withdraw(request)
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

    async def _grant(self, request: Request, before: JobAllocation | None, hold: QpuHold) -> JobAllocation | None:
        if before is None:
            lease = await self.requests.wait_in_line(request)
        else:
            lease = await self.requests.grant_after(request, before.released)
        self.record(answered(request, lease))
        if lease is None:
            return None
        try:
            session = None
            if lease.device is not None:
                session = await self.requests.open_session(request, lease.device, lease.engine_id)
        except BaseException as failure:
            engine_us = await self.world.free(lease)  # nobody else knows of it yet
            self.record(Released(lease=lease.id, engine_us=engine_us))
            if isinstance(failure, asyncio.CancelledError):  # nobody cancels this one: the request was withdrawn
                return None
            raise
        return JobAllocation(self, lease, session, hold)

    @property
    def session(self) -> Session | None:
        """The hold on a QPU that the job has now, in whichever allocation."""
        for allocation in self.allocations:
            if allocation.session is not None:
                return allocation.session
        return None

    async def session_for(self, payload: Payload) -> Session | None:
        """The hold in which a payload is to run; None if the job holds no QPU, and its tasks queue one by one."""
        keeper = None
        for allocation in self.allocations:
            session = allocation.session
            if session is not None and self._broker.takes(session.device, payload):
                allocation.qpu_used = True
                return session
            if keeper is None and (session is not None or allocation.owes_qpu):
                keeper = allocation
        return None if keeper is None else await self._hold_beside(keeper, self._broker.choose(payload))

    async def _hold_beside(self, keeper: JobAllocation, device: str) -> Session | None:
        """Hold another device as long as an allocation holds a QPU; instead of its own, if no task has used that."""
        async with self._taking.setdefault(device, asyncio.Lock()):
            known = next((held.session for held in self.allocations if _is_on(held, device)), None)
            if known is not None:
                return known  # another call was quicker
            if not keeper.qpu_used:
                await keeper.release_qpu()
            beside = await self._allocate(Need(qpu=keeper.hold), device)
            if beside is None:
                return None
            beside.qpu_used = True
            keeper.owes_qpu = False
            keeper.beside.append(beside)
            return beside.session

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
        run = TaskRun(work, self._abandon)
        self._line.append(run)
        self._dispatch()
        if run in self._line:
            parked = [held.parking for held in self.allocations if held.parking.has_room_for(work)]
            for parking in parked[:1]:
                parking.come_back()
        return run

    def _abandon(self, run: TaskRun) -> None:
        if run in self._line:
            self._line.remove(run)

    def take(self, idle: int) -> TaskRun | None:
        """The first required work that so many idle nodes can run."""
        for run in self._line:
            if run.work.task.nodes <= idle:
                self._line.remove(run)
                return run
        return None

    @property
    def waiting(self) -> Sequence[Work]:
        """Required work that no node runs yet."""
        return [run.work for run in self._line]

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

    async def close(self) -> None:
        """Give back whatever is still held."""
        self.spare.clear()
        for allocation in list(self.allocations):
            await allocation.release()
        await self.tasks.aclose()


def _is_on(held: JobAllocation, device: str) -> bool:
    return held.session is not None and held.session.device == device
