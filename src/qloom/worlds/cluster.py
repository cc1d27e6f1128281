"""The cluster as one job sees it: asks the world for allocations, runs work on them, keeps the record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from qloom.aio import see_through
from qloom.broker.inprocess import InProcessBroker, Session
from qloom.errors import NeedError, TaskFailed
from qloom.journal.file import Recorder
from qloom.model import Need, QpuHold, Work
from qloom.ports import Cluster, Lease, Request, World
from qloom.worlds.allocation import Allocation
from qloom.worlds.spare import SparePool


class JobCluster(Cluster):
    """One job's way to nodes and QPUs."""

    def __init__(self, world: World, broker: InProcessBroker, recorder: Recorder) -> None:
        self.world = world
        self.record = recorder.record
        self.spare = SparePool()
        self.allocations: list[Allocation] = []
        self._broker = broker
        self._recorder = recorder
        self._requests_made = 0
        self.open_blocks = 0  # quantum blocks of the program: what they hold outlasts the tasks that run

    async def allocate(self, need: Need, within_s: float | None = None) -> Allocation | None:
        """Wait in line for all that is needed; the QPU's session is opened as soon as the lease is there."""
        if need.nodes > len(self.world.node_names):
            raise NeedError(
                f"{need.nodes} nodes were asked for and there are {len(self.world.node_names)}",
                job=self._recorder.job,
                hint="ask for fewer, or give the site more with --nodes",
            )
        request = self.request(need.nodes, need.nodes, need.qpu)
        self.record("requested", lease=request.id, nodes=need.nodes, device=request.device, hold=need.qpu.value)
        cancel = None
        if within_s is not None:
            cancel = self.world.clock.deadline(within_s, lambda: self.world.withdraw(request))
        granting = asyncio.ensure_future(self._grant(request))
        try:
            return await asyncio.shield(granting)
        except asyncio.CancelledError:
            self.world.withdraw(request)
            await see_through(granting)
            if (allocation := granting.result()) is not None:
                await allocation.release()
            raise
        finally:
            if cancel is not None:
                cancel()

    async def _grant(self, request: Request) -> Allocation | None:
        lease = await self.world.grant(request)
        if lease is None:
            self.record("withdrawn", lease=request.id)
            return None
        self.record(
            "granted",
            lease=lease.id,
            nodes=list(lease.nodes),
            device=lease.device,
            hold=request.qpu.value if lease.device else None,
            shares=lease.shares or None,
            waited_for=request.waited_for,
            engine_us=lease.engine_us,
        )
        try:
            session = await self._broker.open_session(lease.device, request.qpu) if lease.device else None
        except BaseException:
            engine_us = await self.world.free(lease)  # nobody else knows of it yet
            self.record("released", lease=lease.id, engine_us=engine_us)
            raise
        return Allocation(self, lease, session)

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
        held = [allocation.session for allocation in self.allocations if allocation.session is not None]
        return held[0] if held else None

    @property
    def keeps_qpu(self) -> bool:
        """Whether a block holds a QPU that others may be waiting for."""
        return self.open_blocks > 0 and self.session is not None

    async def let_go_of_qpu(self) -> None:
        """Give every hold of a QPU back; the rest of a block then queues task by task."""
        for allocation in list(self.allocations):
            await allocation.release_qpu()

    def fill_idle_nodes(self, spare: Sequence[Work]) -> None:
        """Run these on nodes that are held but idle."""
        for work in spare:
            self.spare.register(work)
        for allocation in list(self.allocations):
            allocation.dispatch()

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease, spare: bool = False) -> Any:
        """Run a task in the world, with its beginning and its end in the journal."""
        self.record("task_started", work=work.id, name=work.task.name, nodes=list(nodes), spare=spare or None)
        try:
            result = await self.world.execute(nodes, work, lease)
            kept = self._recorder.keep(result)
        except asyncio.CancelledError:
            self.record("task_ended", work=work.id, state="dropped")
            raise
        except Exception as error:
            failure = error if isinstance(error, TaskFailed) else TaskFailed(f"task {work.task.name}: {error}")
            failure.job = work.job
            self.record("task_ended", work=work.id, state="failed", error=failure.message)
            raise failure from None
        self.record("task_ended", work=work.id, state="done", result=kept)
        return result

    async def close(self) -> None:
        """Give back whatever is still held."""
        self.spare.clear()
        for allocation in list(self.allocations):
            await allocation.release()
