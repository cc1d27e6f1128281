"""A world as seen by a driver that lives in an allocation: a job that it works with, one beside its own, or a chain.

The driver's allocation lends its nodes and its QPU to the allocations of the run (`lending.py`); what it lacks is
asked of the world, for a bounded time (`handover.py`). A link of a chain serves one request and never waits.
Nothing here knows which engine grants what, so the same rules run on Slurm and in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from qloom.aio import TaskScope, report_failure
from qloom.errors import QloomError
from qloom.model import QpuHold, Task, Work
from qloom.world import HandedOn, Lease, Ran, Request, World
from qloom.worlds.handover import Handover, WaitingRequest, WaitingRequests
from qloom.worlds.lending import Lender, Loan

IDLE_S = 1.0  # nodes of the driver's allocation that lie idle for longer are given back, but for the driver's own


class HostedWorld(World):
    """The world around a driver whose own allocation is `own`; `hold` is how that holds its QPU.

    With `whole` an allocation is lent or asked for, but never made of both: ranks of an MPI task cannot span the two.
    With `once`, the driver is a link of a chain.
    """

    def __init__(
        self,
        world: World,
        own: Lease,
        hold: QpuHold,
        handover: Handover,
        patience_s: float,
        *,
        whole: bool = False,
        once: bool = False,
    ) -> None:
        self.clock, self.node_names = world.clock, world.node_names
        self.devices, self.shares = world.devices, world.shares
        self._world = world
        self._lender = Lender(own, hold)
        self._own = own
        self._whole = whole or once
        self._once = once
        self._has_served = False
        self._loans: dict[str, Loan] = {}  # by lease
        self._waiting = WaitingRequests(world, handover, patience_s, once=once)
        self._growing: dict[str, Request] = {}
        self._idle_since_us = self.clock.now_us()
        self._scope = TaskScope(report_failure)
        self._is_closed = False

    # Asking

    async def grant(self, request: Request) -> Lease | None:
        """Lend what is idle, and wait in the world's line for the rest."""
        try:
            with self._waiting.wait(request) as waiting:
                lease = await self._obtain(waiting)
        finally:
            if waiting.served:
                self._offer()  # what is left may serve the next one
        if lease is not None and not request.spare:  # spare work is nothing that the run waits for
            self._waiting.add(lease)
        return lease

    async def _obtain(self, waiting: WaitingRequest) -> Lease | None:
        request, lender = waiting.request, self._lender
        while not waiting.withdrawn:
            self._waiting.raise_refusal()
            if self._waiting.is_handed_over or (not request.eligible and self._must_wait_here(request)):
                await self._waiting.wait_for_change()
                continue
            lends = lender.covers(request) if self._whole else True
            loan = waiting.loan = lender.lend(request) if lends and not (self._once and self._has_served) else Loan()
            rest = loan.rest(request)
            if rest is not None and self._once:  # it stands in no line: the next job will
                await self._waiting.wait_for_change()
                continue
            if rest is None or (await self._grant_rest(waiting, rest)) is not None:
                return self._lease(request, loan)
            if not waiting.served and not self._waiting.is_handed_over:
                return None
        return None

    def _must_wait_here(self, request: Request) -> bool:
        """Whether no engine can keep its place in line: it comes after something in the driver's own job."""
        return self._once or (request.after is not None and request.after.id in self._loans)

    async def _grant_rest(self, waiting: WaitingRequest, rest: Request) -> Lease | None:
        """Wait in the world's line; without a grant, what was set aside is idle again."""
        waiting.rest, waiting.served = rest, False
        loan = waiting.loan
        try:
            loan.granted = await self._world.grant(rest)
        finally:
            waiting.rest = None
            if loan.granted is None:
                self._lender.take_back(loan.nodes, has_qpu=loan.has_qpu)
            self._waiting.notify()
        waiting.request.waited_for = rest.waited_for
        return loan.granted

    def _lease(self, request: Request, loan: Loan) -> Lease:
        if loan.granted is not None and loan.is_empty:
            return loan.granted
        self._has_served = True
        self._loans[request.id] = loan
        return self._lender.lease(request, loan)

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Lend idle nodes, or wait in the world's line."""
        lease = request.lease
        loan = self._loans.get(lease.id) if lease is not None else None
        if lease is None or loan is None:
            return await self._world.more_nodes(request)
        if idle := self._lender.lend_more(lease, loan, request.most_nodes):
            return idle
        granted = loan.granted = loan.granted or Lease(lease.id, lease.job, [])
        asked = self._growing[request.id] = replace(request, lease=granted)
        try:
            gained = await self._world.more_nodes(asked)
        finally:
            del self._growing[request.id]
        lease.engine_us, lease.engine_id = granted.engine_us, granted.engine_id
        lease.nodes += gained
        return gained

    def withdraw(self, request: Request) -> None:
        """Leave the world's line, or the wait for what is lent."""
        if not self._waiting.withdraw(request):
            self._world.withdraw(self._growing.get(request.id, request))

    @property
    def tasks_without_expectation(self) -> Sequence[str]:
        """Names of tasks whose length nobody knows."""
        return self._world.tasks_without_expectation

    @property
    def handed_on(self) -> HandedOn | None:
        """Who goes on with the run, if this driver has ended for that."""
        return self._waiting.handed_on

    # Giving back

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> int | None:
        """Give nodes back; the one that the driver is on stays."""
        loan = self._loans.get(lease.id)
        if loan is None:
            return await self._world.drop_nodes(lease, nodes)
        giving_back = []
        if lent := [node for node in self._own.nodes[1:] if node in loan.nodes and node in nodes]:
            giving_back.append(self._world.drop_nodes(self._own, lent))
        if loan.granted is not None and (theirs := [node for node in nodes if node in loan.granted.nodes]):
            giving_back.append(self._world.drop_nodes(loan.granted, theirs))
        ended_us = await _last_end_us(giving_back)
        self._lender.read_back(lease, loan)
        return ended_us

    async def drop_qpu(self, lease: Lease) -> int | None:
        """Give the QPU back."""
        loan = self._loans.get(lease.id)
        if loan is None:
            ended_us = await self._world.drop_qpu(lease)
        else:
            lease.device, lease.shares = None, 0
            if loan.has_qpu:
                ended_us = await self._drop_own_qpu(loan)
            else:
                ended_us = None if loan.granted is None else await self._world.drop_qpu(loan.granted)
        self._note_release()
        return ended_us

    async def _drop_own_qpu(self, loan: Loan) -> int | None:
        """A job that is nothing but a QPU keeps it until its driver ends."""
        loan.has_qpu = False
        if self._own.nodes:
            return await self._world.drop_qpu(self._own)
        self._lender.take_back([], has_qpu=True)
        return None

    async def free(self, lease: Lease) -> int | None:
        """Give everything back; what was lent is idle again, and serves those who wait."""
        loan = self._loans.pop(lease.id, None)
        if loan is None:
            ended_us = await self._world.free(lease)
        else:
            lease.ended = True
            if loan.granted is not None:
                loan.granted.failed = lease.failed
            giving_back = [self._world.free(loan.granted)] if loan.granted is not None else []
            giving_back += [self._drop_own_qpu(loan)] if loan.has_qpu else []
            ended_us = await _last_end_us(giving_back)
            self._lender.take_back(loan.nodes)
            lease.nodes, lease.device, lease.shares = [], None, 0
        was_required = self._waiting.remove(lease)
        self._offer()
        if was_required:
            self._note_release()
        return ended_us

    def _note_release(self) -> None:
        """What the driver's own allocation has counts as idle from when the run holds nothing else."""
        if self._waiting.note_release():
            self._idle_since_us = self.clock.now_us()

    def _offer(self) -> None:
        """Serve who waits from what is idle, one after the other; what serves nobody for a while is given back."""
        self._idle_since_us = self.clock.now_us()
        self._waiting.serve_first(self._lender.covers)
        if self._lender.idle and len(self._own.nodes) > 1 and not self._once:
            self.clock.deadline(IDLE_S, self._shrink_if_idle)

    def _shrink_if_idle(self) -> None:
        if self.clock.now_us() - self._idle_since_us < round(IDLE_S * 1e6):
            return  # some were lent meanwhile
        is_shrinking = len(self._scope) > 0
        if not self._is_closed and not is_shrinking and (idle := self._lender.set_idle_aside()):
            self._scope.spawn(self._shrink(idle))

    async def _shrink(self, nodes: list[str]) -> None:
        with suppress(QloomError):  # then they stay
            await self._world.drop_nodes(self._own, nodes)
        self._lender.take_back(nodes)

    # Working

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Ran:
        """Run a task where its first node came from."""
        loan = self._loans.get(lease.id)
        if loan is None:
            return await self._world.execute(nodes, work, lease)
        granted = loan.granted if nodes[0] not in loan.nodes else None
        try:
            return await self._world.execute(nodes, work, granted or self._own)
        finally:
            self._lender.read_back(lease, loan)

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""
        return self._world.nodes_are_short()

    def asked_nodes(self, lease: Lease) -> int | None:
        """What a scheduler wants a malleable job to keep to."""
        return self._world.asked_nodes(lease)

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        self._world.check_task(task)

    def executes_quantum(self) -> bool:
        """Whether a device executes a task that would be lost."""
        return self._world.executes_quantum()

    def who_waits(self) -> list[str]:
        """Who stands in line, or waits for the driver's own allocation, in plain words."""
        return [*self._world.who_waits(), *self._waiting.in_words()]

    def require_all_free(self) -> None:
        """After a run: whatever is still held was leaked."""
        self._world.require_all_free()

    async def close(self) -> None:
        """Cancel what is left; the driver's own allocation ends with the driver."""
        self._is_closed = True
        await self._waiting.close()
        await self._scope.join()
        await self._world.close()


async def _last_end_us(giving_back: Sequence[Coroutine[Any, Any, int | None]]) -> int | None:
    """Give back what was lent and what was granted at once: the journal has one time for both."""
    ends_us = await asyncio.gather(*giving_back)
    return max((end_us for end_us in ends_us if end_us is not None), default=None)
