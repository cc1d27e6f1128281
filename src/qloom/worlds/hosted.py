"""A world as seen by a driver that lives in an allocation: a job that it works with, one beside its own, or a chain.

The driver's allocation lends its nodes and its QPU to the allocations of the run; what it lacks is asked of the
world. Such a driver holds something while it waits, so two of them could wait for each other for ever. Hence a bound:
once a request has waited for `patience_s` while the run holds nothing else, the run is handed over to a new job that
asks for the whole request at once, and this driver ends. A link of a chain serves one request and never waits.

Nothing here knows which engine grants what, so the same rules run on Slurm and in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from qloom.errors import QloomError
from qloom.model import QpuHold, Task, Work
from qloom.ports import HandedOn, Lease, Request, World

IDLE_S = 1.0  # nodes of the driver's allocation that lie idle for longer are given back, but for the driver's own


class Handover(Protocol):
    """Gives a run to a new job of the engine."""

    next_job: str | None  # what the engine calls that job, once it is submitted

    async def submit(self, request: Request) -> None:
        """Submit a job that begins with this request, and end the driver."""


@dataclass(eq=False)
class _Loan:
    """What an allocation has of the driver's, and what the world has granted beside it."""

    nodes: list[str] = field(default_factory=list)
    has_qpu: bool = False
    granted: Lease | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was lent."""
        return not self.nodes and not self.has_qpu


@dataclass(eq=False)
class _Waiting:
    request: Request
    since_us: int
    loan: _Loan = field(default_factory=_Loan)  # set aside until the world has granted the rest
    rest: Request | None = None  # what the world is asked for
    withdrawn: bool = False
    retry: bool = False  # what the world was asked for has become free in the driver's own allocation
    failure: QloomError | None = None  # of the handover


class HostedWorld(World):
    """The world around a driver whose own allocation is `own`; `hold` is how that holds its QPU."""

    def __init__(
        self, world: World, own: Lease, hold: QpuHold, handover: Handover, patience_s: float, *, once: bool = False
    ) -> None:
        self.clock, self.node_names, self.devices = world.clock, world.node_names, world.devices
        self._world = world
        self._own = own
        self._hold = hold
        self._handover = handover
        self._patience_s = patience_s
        self._once = once
        self._has_served = False
        self._idle = list(own.nodes)
        self._qpu_is_idle = own.device is not None
        self._start_us = own.engine_us  # what the first allocation has of it, it has had since then
        self._loans: dict[str, _Loan] = {}  # by lease
        self._granted: dict[str, Lease] = {}
        self._waiting: dict[str, _Waiting] = {}  # in the order in which they came
        self._growing: dict[str, Request] = {}
        self._changed = asyncio.Event()
        self._handing_over: asyncio.Task[None] | None = None
        self._reason: str | None = None
        self._shrinking: asyncio.Task[None] | None = None

    # Asking

    async def grant(self, request: Request) -> Lease | None:
        """Lend what is idle, and wait in the world's line for the rest."""
        waiting = self._waiting[request.id] = _Waiting(request, self.clock.now_us())
        cancel = self.clock.deadline(self._patience_s, self._hand_over_if_blocked)
        try:
            lease = await self._obtain(waiting)
        finally:
            cancel()
            del self._waiting[request.id]
        if lease is not None:
            self._granted[lease.id] = lease
        return lease

    async def _obtain(self, waiting: _Waiting) -> Lease | None:
        request = waiting.request
        while not waiting.withdrawn:
            if waiting.failure is not None:
                raise waiting.failure
            if not request.eligible and self._must_wait_here(request):
                await self._change()
                continue
            loan = waiting.loan = self._lend(request)
            rest = _rest(request, loan)
            if rest is None:
                return self._lease(request, loan)
            if self._once:  # it stands in no line: the next job will
                await self._change()
                continue
            loan.granted = await self._grant_rest(waiting, rest)
            if loan.granted is not None:
                return self._lease(request, loan)
            if not waiting.retry and waiting.failure is None:
                return None
        return None

    async def _grant_rest(self, waiting: _Waiting, rest: Request) -> Lease | None:
        """Wait in the world's line; without a grant, what was set aside is idle again."""
        waiting.rest, waiting.retry = rest, False
        granted = None
        try:
            granted = await self._world.grant(rest)
        finally:
            waiting.rest = None
            if granted is None:
                self._take_back(waiting.loan)
        waiting.request.waited_for = rest.waited_for
        return granted

    def _must_wait_here(self, request: Request) -> bool:
        """Whether no engine can keep its place in line: it comes after something in the driver's own job."""
        return self._once or (request.after is not None and request.after.id in self._loans)

    def _lend(self, request: Request) -> _Loan:
        """Set aside what is idle and asked for. A link of a chain lends once, and all of it."""
        if self._once and (self._has_served or not self._covers(request)):
            return _Loan()
        loan = _Loan(self._idle[: request.most_nodes], self._qpu_is_idle and self._has_qpu_for(request))
        self._idle = self._idle[len(loan.nodes) :]
        self._qpu_is_idle &= not loan.has_qpu
        return loan

    def _covers(self, request: Request, lent_nodes: int = 0, *, has_qpu: bool = False) -> bool:
        """Whether what is idle, and what was lent already, is all that a request asks for."""
        has_qpu |= self._qpu_is_idle and self._has_qpu_for(request)
        return len(self._idle) + lent_nodes >= request.least_nodes and (has_qpu or not _wants_qpu(request))

    def _has_qpu_for(self, request: Request) -> bool:
        return request.qpu is self._hold and request.device == self._own.device and self._own.device is not None

    def _take_back(self, loan: _Loan) -> None:
        self._idle = [node for node in self._own.nodes if node in self._idle or node in loan.nodes]
        self._qpu_is_idle |= loan.has_qpu

    def _lease(self, request: Request, loan: _Loan) -> Lease:
        """One allocation, of what was lent and what was granted."""
        granted = loan.granted
        if granted is not None and loan.is_empty:
            return granted
        self._has_served = True
        start_us, self._start_us = self._start_us, None
        lease = Lease(request.id, request.job, [*loan.nodes, *(granted.nodes if granted else ())])
        lease.engine_us = start_us if granted is None else granted.engine_us
        holder = self._own if granted is None or loan.has_qpu else granted
        lease.engine_id, lease.device, lease.shares = holder.engine_id, holder.device, holder.shares
        if not loan.has_qpu and holder is self._own:
            lease.device, lease.shares = None, 0
        self._loans[lease.id] = loan
        return lease

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Lend idle nodes, or wait in the world's line."""
        lease = request.lease
        loan = self._loans.get(lease.id) if lease is not None else None
        if lease is None or loan is None:
            return await self._world.more_nodes(request)
        if idle := self._idle[: request.most_nodes]:
            self._idle = self._idle[len(idle) :]
            loan.nodes += idle
            lease.nodes += idle
            lease.engine_us, lease.engine_id = None, self._own.engine_id
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
        waiting = self._waiting.get(request.id)
        if waiting is None:
            self._world.withdraw(self._growing.get(request.id, request))
            return
        waiting.withdrawn = True
        if waiting.rest is not None:
            self._world.withdraw(waiting.rest)
        self._notify()

    async def _change(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Handing over

    def _hand_over_if_blocked(self) -> None:
        """No request may wait for longer than its bound while the run does nothing but wait."""
        if self._handing_over is not None or any(lease.nodes or lease.device for lease in self._granted.values()):
            return
        since_us = self.clock.now_us() - round(self._patience_s * 1e6)
        for waiting in self._waiting.values():
            if waiting.since_us <= since_us and waiting.request.eligible and not waiting.request.spare:
                self._handing_over = asyncio.ensure_future(self._hand_over(waiting))
                return

    async def _hand_over(self, waiting: _Waiting) -> None:
        request = waiting.request
        if not self._once:  # a driver that goes on needs a place when the QPU is given back
            self._reason = f"{_missing(waiting.rest or request)} did not come in {self._patience_s:g} s"
            request = replace(request, least_nodes=max(1, request.least_nodes), most_nodes=max(1, request.most_nodes))
        try:
            await self._handover.submit(replace(request, lease=None, after=None))
        except QloomError as error:
            waiting.failure = error
            if waiting.rest is not None:
                self._world.withdraw(waiting.rest)
            self._notify()

    @property
    def handed_on(self) -> HandedOn | None:
        """Who goes on with the run, if this driver has ended for that."""
        next_job = self._handover.next_job
        return None if next_job is None else HandedOn(next_job, self._reason)

    # Giving back

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> int | None:
        """Give nodes back; the one that the driver is on stays."""
        loan = self._loans.get(lease.id)
        if loan is None:
            return await self._world.drop_nodes(lease, nodes)
        ended_us = None
        if lent := [node for node in self._own.nodes[1:] if node in loan.nodes and node in nodes]:
            ended_us = await self._world.drop_nodes(self._own, lent)
        if loan.granted is not None and (theirs := [node for node in nodes if node in loan.granted.nodes]):
            ended_us = await self._world.drop_nodes(loan.granted, theirs)
        self._read_back(lease, loan)
        return ended_us

    def _read_back(self, lease: Lease, loan: _Loan) -> None:
        """The world knows which nodes are still held."""
        loan.nodes = [node for node in loan.nodes if node in self._own.nodes]
        lease.nodes = [*loan.nodes, *(loan.granted.nodes if loan.granted else ())]

    async def drop_qpu(self, lease: Lease) -> int | None:
        """Give the QPU back."""
        loan = self._loans.get(lease.id)
        if loan is None:
            return await self._world.drop_qpu(lease)
        lease.device, lease.shares = None, 0
        if loan.has_qpu:
            return await self._drop_own_qpu(loan)
        return None if loan.granted is None else await self._world.drop_qpu(loan.granted)

    async def _drop_own_qpu(self, loan: _Loan) -> int | None:
        """A job that is nothing but a QPU ends with its driver."""
        loan.has_qpu = False
        if self._own.nodes:
            return await self._world.drop_qpu(self._own)
        self._qpu_is_idle = True
        return None

    async def free(self, lease: Lease) -> int | None:
        """Give everything back; what was lent is idle again, and serves those who wait."""
        loan = self._loans.pop(lease.id, None)
        if loan is None:
            ended_us = await self._world.free(lease)
        else:
            lease.ended = True
            ended_us = await self._drop_own_qpu(loan) if loan.has_qpu else None
            ended_us = ended_us if loan.granted is None else await self._world.free(loan.granted)
            self._read_back(lease, loan)
            self._take_back(loan)
            lease.nodes, lease.device, lease.shares = [], None, 0
        self._granted.pop(lease.id, None)
        self._offer()
        self._hand_over_if_blocked()
        return ended_us

    def _offer(self) -> None:
        """Serve who waits from what is idle now; what serves nobody for a while is given back."""
        for waiting in self._waiting.values():
            loan = waiting.loan
            covered = self._covers(waiting.request, len(loan.nodes), has_qpu=loan.has_qpu)
            if waiting.rest is not None and covered:
                waiting.retry = True
                self._world.withdraw(waiting.rest)
                break
        self._notify()
        if self._idle and len(self._own.nodes) > 1:
            self.clock.deadline(IDLE_S, self._shrink_if_idle)

    def _shrink_if_idle(self) -> None:
        idle = [node for node in self._own.nodes[1:] if node in self._idle]
        if idle and not self._once and (self._shrinking is None or self._shrinking.done()):
            self._idle = [node for node in self._idle if node not in idle]
            self._shrinking = asyncio.ensure_future(self._shrink(idle))

    async def _shrink(self, nodes: list[str]) -> None:
        await self._world.drop_nodes(self._own, nodes)
        self._take_back(_Loan(nodes))

    # Working

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Any:
        """Run a task where its first node came from."""
        loan = self._loans.get(lease.id)
        if loan is None:
            return await self._world.execute(nodes, work, lease)
        is_granted = loan.granted is not None and nodes[0] not in loan.nodes
        try:
            return await self._world.execute(nodes, work, loan.granted if is_granted else self._own)  # type: ignore[arg-type]
        finally:
            self._read_back(lease, loan)

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""
        return self._world.nodes_are_short()

    def asked_nodes(self, lease: Lease) -> int | None:
        """What a scheduler wants a malleable job to keep to."""
        return self._world.asked_nodes(lease)

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        self._world.check_task(task)

    def who_waits(self) -> list[str]:
        """Who stands in line, in plain words."""
        return self._world.who_waits()

    def require_all_free(self) -> None:
        """After a run: whatever is still held was leaked."""
        self._world.require_all_free()

    async def close(self) -> None:
        """Cancel what is left; the driver's own allocation ends with the driver."""
        if self._shrinking is not None:
            await asyncio.wait([self._shrinking])
        await self._world.close()


def _wants_qpu(request: Request) -> bool:
    return request.device is not None and request.qpu is not QpuHold.TASK


def _missing(request: Request) -> str:
    nodes = request.least_nodes
    things = [f"{nodes} {'node' if nodes == 1 else 'nodes'}"] if nodes else []
    return " and ".join([*things, *([f"QPU {request.device}"] if _wants_qpu(request) else [])])


def _rest(request: Request, loan: _Loan) -> Request | None:
    """What is left to ask for; None if all of it was lent."""
    nodes = max(0, request.least_nodes - len(loan.nodes))
    needs_qpu = _wants_qpu(request) and not loan.has_qpu
    if not nodes and not needs_qpu:
        return None
    if loan.is_empty:
        return request
    rest = replace(request, least_nodes=nodes, most_nodes=nodes)
    return rest if needs_qpu else replace(rest, qpu=QpuHold.TASK, device=None)
