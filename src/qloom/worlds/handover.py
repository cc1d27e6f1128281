"""The bound on how long a driver that lives in an allocation may wait, and the handover of its run at that bound.

Such a driver holds something while it waits, so two of them could wait for each other for ever. Once a request has
waited for `patience_s` while the run held nothing but spare work, the run is handed over to a job of the engine that
asks for the whole request at once, and this driver ends. Nothing here knows the engine, or what the driver lends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from qloom.aio import TaskScope, report_failure
from qloom.errors import JobError, QloomError
from qloom.world import HandedOn, Lease, Request, World
from qloom.worlds.lending import Loan, in_words

LOOK_S = 1.0  # between two looks whether the QPU is done


class Handover(Protocol):
    """Gives a run to a new job of the engine."""

    next_job: str | None  # what the engine calls that job, once it is submitted

    async def submit(self, request: Request) -> None:
        """Submit a job that begins with this request, once this driver has ended."""

    async def withdraw(self) -> None:
        """Cancel that job: the run has ended meanwhile."""

    def end_driver(self) -> None:
        """End this driver, for that one to start."""


@dataclass(eq=False)
class WaitingRequest:
    """A request that has not been granted."""

    request: Request
    since_us: int
    loan: Loan = field(default_factory=Loan)  # set aside until the world has granted the rest
    rest: Request | None = None  # what the world is asked for
    withdrawn: bool = False
    served: bool = False  # what the world was asked for has become free in the driver's own allocation


class WaitingRequests:
    """The requests of a run that have not been granted, in the order in which they came, and what the run holds.

    With `once` the driver is a link of a chain: the next job asks for exactly what was requested.
    """

    def __init__(self, world: World, handover: Handover, patience_s: float, *, once: bool) -> None:
        self._world = world
        self._clock = world.clock
        self._handover = handover
        self._patience_s = patience_s
        self._once = once
        self._open: dict[str, WaitingRequest] = {}  # by request
        self._required: dict[str, Lease] = {}  # that were granted for required work
        self._holds_nothing_since_us = self._clock.now_us()
        self._changed = asyncio.Event()
        self._scope = TaskScope(report_failure)
        self.is_handed_over = False  # or about to be: nothing is asked for any more
        self._reason: str | None = None
        self._refusal: QloomError | None = None  # why the run could not be handed over
        self._is_closed = False

    def __iter__(self) -> Iterator[WaitingRequest]:
        return iter(self._open.values())

    @contextmanager
    def wait(self, request: Request) -> Iterator[WaitingRequest]:
        """Let a request wait for as long as the body runs; its bound counts from now."""
        waiting = self._open[request.id] = WaitingRequest(request, self._clock.now_us())
        cancel = self._clock.deadline(self._patience_s, self._hand_over_if_blocked)
        try:
            yield waiting
        finally:
            cancel()
            del self._open[request.id]

    def in_words(self) -> list[str]:
        """Who waits for the driver's own allocation, and for nothing of the world's."""
        here = [waiting.request for waiting in self if waiting.rest is None]
        return [f"job {request.job} waits for {in_words(request)} of its driver's own job" for request in here]

    def withdraw(self, request: Request) -> bool:
        """Take a request back; returns whether it was waiting."""
        waiting = self._open.get(request.id)
        if waiting is None:
            return False
        waiting.withdrawn = True
        if waiting.rest is not None:
            self._world.withdraw(waiting.rest)
        self.notify()
        return True

    def serve_first(self, covers: Callable[[Request, Loan], bool]) -> None:
        """Take the first request that the driver's own allocation covers out of the world's line; one at a time."""
        for waiting in self:
            if waiting.served:
                break
            if waiting.rest is not None and covers(waiting.request, waiting.loan):
                waiting.served = True
                self._world.withdraw(waiting.rest)
                break
        self.notify()

    async def wait_for_change(self) -> None:
        """Wait until something may have become free, was withdrawn, or the run cannot be handed over."""
        await self._changed.wait()

    def notify(self) -> None:
        """Wake all who wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def raise_refusal(self) -> None:
        """Raise why the run could not be handed over, if that was tried."""
        if self._refusal is not None:
            raise self._refusal

    # What the run holds

    def add(self, lease: Lease) -> None:
        """A lease was granted for required work."""
        self._required[lease.id] = lease

    def remove(self, lease: Lease) -> bool:
        """A lease has ended; returns whether it was one for required work."""
        return self._required.pop(lease.id, None) is not None

    def note_release(self) -> bool:
        """Something was given back; returns whether the run holds nothing now, from when on its wait counts."""
        if self._holds_anything():
            return False
        self._holds_nothing_since_us = self._clock.now_us()
        self._clock.deadline(self._patience_s, self._hand_over_if_blocked)
        return True

    def _holds_anything(self) -> bool:
        return any(lease.nodes or lease.device for lease in self._required.values())

    # Handing over

    def _hand_over_if_blocked(self) -> None:
        """No request may wait for longer than its bound while the run does nothing but wait."""
        if self.is_handed_over or self._holds_anything() or self._is_closed:
            return
        if self._world.executes_quantum():
            self._clock.deadline(LOOK_S, self._hand_over_if_blocked)
            return
        bound_us = self._clock.now_us() - round(self._patience_s * 1e6)
        for waiting in self:
            is_blocked = max(waiting.since_us, self._holds_nothing_since_us) <= bound_us and not waiting.served
            is_wanted = waiting.request.eligible and not waiting.request.spare and not waiting.withdrawn
            if is_blocked and is_wanted:
                self.is_handed_over = True
                self._scope.spawn(self._hand_over(waiting))
                return

    async def _hand_over(self, blocked: WaitingRequest) -> None:
        """Leave the line first: a site may limit how many jobs of a user stand in it."""
        request = blocked.request
        if not self._once:  # the next driver needs a node when it has given the QPU back
            self._reason = f"{in_words(blocked.rest or request)} did not come in {self._patience_s:g} s"
            request = replace(request, least_nodes=max(1, request.least_nodes), most_nodes=max(1, request.most_nodes))
        for waiting in self:
            if waiting.rest is not None:
                self._world.withdraw(waiting.rest)
        while any(waiting.rest is not None for waiting in self):
            await self.wait_for_change()
        if self._holds_anything() or blocked.withdrawn:  # one was granted all the same, or nobody wants it any more
            self.is_handed_over = False
            self.notify()
            self._clock.deadline(self._patience_s, self._hand_over_if_blocked)  # for the others who wait
            return
        try:
            await self._handover.submit(replace(request, lease=None, after=None))
            if self._is_closed:
                await self._handover.withdraw()
            else:
                self._handover.end_driver()
        except Exception as error:
            self._refusal = error if isinstance(error, QloomError) else JobError(f"cannot hand the run over: {error}")
            self.notify()

    @property
    def handed_on(self) -> HandedOn | None:
        """Who goes on with the run, if this driver has ended for that."""
        next_job = self._handover.next_job
        return None if next_job is None else HandedOn(next_job, self._reason)

    async def close(self) -> None:
        """Hand nothing over from now on; a job that is being submitted is withdrawn."""
        self._is_closed = True
        await self._scope.join()
