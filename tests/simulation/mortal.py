"""Drivers that can be killed as `kill -9` does it: no `finally` of theirs runs, and what they held stays held.

The cluster and the broker live on. Everything that a driver does runs in a context of its own; once it is dead,
the loop sets what it would do next aside. What it held is given back by others: the cluster's reaper and the broker.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

from qloom.broker.inprocess import InProcessBroker
from qloom.broker.port import Session
from qloom.journal.event import Event
from qloom.journal.events import JobEnded
from qloom.journal.file import Journal, Recorder
from qloom.model import QpuHold, QuantumWork
from qloom.site import Site
from qloom.world import Clock, Lease, Request
from qloom.worlds.line import FifoLine
from qloom.worlds.partitions import Grant
from qloom.worlds.virtual.loop import VirtualLoop
from qloom.worlds.virtual.world import VirtualWorld

OWN = contextvars.ContextVar["Driver | None"]("OWN", default=None)


class Driver:
    """One process that runs the jobs of a run: its cluster and its broker."""

    def __init__(self, number: int, site: Site, line: FifoLine, broker: InProcessBroker, clock: Clock) -> None:
        self.died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.line = OwnLine(self, line, number)
        self.broker = OwnBroker(self, broker)
        self.world = VirtualWorld(site, clock, line=self.line)  # type: ignore[arg-type]
        self._steps_left: int | None = None
        self._set_aside: list[tuple[Any, tuple[Any, ...], contextvars.Context]] | None = None

    @property
    def is_dead(self) -> bool:
        """Whether nothing that it does has an effect any more."""
        return self.died.done()

    @property
    def holds_nothing(self) -> bool:
        """Whether the cluster and the broker have nothing of it."""
        return self.line.holds_nothing and self.broker.holds_nothing

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run in a context of its own, which all that it begins inherits."""
        own = contextvars.copy_context()
        own.run(OWN.set, self)
        started = asyncio.get_running_loop().create_task(main, context=own)
        started.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # of a dead one nobody asks
        return started

    def kill(self, after_steps: int) -> None:
        """Let it die when it has taken so many more steps: at once, or between any two of them."""
        if after_steps == 0:
            self._die()
        self._steps_left = after_steps

    def _die(self) -> None:
        if not self.is_dead:
            self._set_aside = []
            self.died.set_result(None)

    def step(self, callback: Any, *args: Any) -> None:
        """One step of it, if it lives."""
        if self._steps_left == 0:
            self._die()
        if self._set_aside is not None:
            self._set_aside.append((callback, args, contextvars.copy_context()))
            return
        self._steps_left = None if self._steps_left is None else self._steps_left - 1
        callback(*args)

    def bury(self) -> None:
        """At the very end: let its coroutines be cancelled, so that none is destroyed while pending."""
        steps, self._set_aside, self._steps_left = self._set_aside or [], None, None
        for callback, args, context in steps:
            asyncio.get_running_loop().call_soon(callback, *args, context=context)


class MortalLoop(VirtualLoop):
    """Virtual time in which each step of a driver asks whether that one still lives."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        context = contextvars.copy_context() if context is None else context
        return super().call_soon(*_step_of(context, callback), *args, context=context)

    def call_at_us(self, when_us: int, callback: Any, *args: Any, context: Any = None, deadline: bool = False) -> Any:
        context = contextvars.copy_context() if context is None else context
        own = _step_of(context, callback)
        return super().call_at_us(when_us, *own, *args, context=context, deadline=deadline)


def _step_of(context: contextvars.Context, callback: Any) -> tuple[Any, ...]:
    driver = context.get(OWN)
    return (callback,) if driver is None else (driver.step, callback)


def _outside() -> contextvars.Context:
    """A context that is no driver's, for what outlives them."""
    context = contextvars.copy_context()
    context.run(OWN.set, None)
    return context


async def _for_ever() -> None:
    """What the dead are told."""
    await asyncio.get_running_loop().create_future()


class OwnJournal(Journal):
    """The journal of one run. A dead driver writes nothing, and of what it wrote only durable events are safe."""

    def __init__(self, driver: Driver, clock: Clock, past: OwnJournal | None = None, kept: int = 0) -> None:
        super().__init__(None, clock, first=kept)
        self._driver = driver
        self.durable = kept  # events that are on the disk
        if past is not None:
            self.events, self.results = past.written[:kept], past.results

    @property
    def written(self) -> list[Event]:
        return self.events or []

    def record(self, event: Event, *, durable: bool = False, job: str = "") -> None:
        if not self._driver.is_dead:
            super().record(event, durable=durable, job=job)
            self.durable = len(self.written) if durable else self.durable

    def done_jobs(self) -> dict[str, Any]:
        """The results of the jobs that it has as done."""
        done = [event for event in self.written if isinstance(event, JobEnded) and event.state == "done"]
        return {event.job: self.results.load(event.result or {}) for event in done}

    def cut(self, rng: Random) -> int:
        """How many events survive a crash."""
        return rng.randint(self.durable, len(self.written))


class OwnLine:
    """The cluster's line as one driver uses it; the cluster knows what it holds."""

    def __init__(self, driver: Driver, line: FifoLine, number: int) -> None:
        self._driver = driver
        self._line = line
        self._number = number  # a resumed job counts its requests from one again
        self._on_the_way: dict[str, bool] = {}  # False: taken back before it stood in line
        self._waiting: dict[str, Request] = {}
        self._nodes: dict[str, bool] = {}
        self._shares: dict[str, int] = {}
        self._is_reaped = False

    @property
    def holds_nothing(self) -> bool:
        return not self._waiting and not self._nodes and not any(self._shares.values())

    def holds(self, node: str) -> bool:
        return node in self._nodes

    async def wait(self, request: Request) -> Grant | None:
        asked = replace(request, id=f"{request.id}, driver {self._number}")
        if self._driver.is_dead:
            await _for_ever()
        self._on_the_way[request.id] = True
        waiting = asyncio.get_running_loop().create_task(self._wait(request.id, asked), context=_outside())
        grant = await waiting
        request.waited_for = asked.waited_for
        return None if grant is None else replace(grant, request=request)

    async def _wait(self, name: str, asked: Request) -> Grant | None:
        if not self._on_the_way.pop(name):
            return None
        self._waiting[name] = asked
        grant = await self._line.wait(asked)
        del self._waiting[name]
        if grant is not None:
            self._nodes.update(dict.fromkeys(grant.nodes, True))
            if asked.device is not None:
                self._shares[asked.device] = self._shares.get(asked.device, 0) + grant.shares
        if self._is_reaped:
            self.reap()
        return grant

    def withdraw(self, request: Request) -> None:
        if self._driver.is_dead:
            return
        if request.id in self._on_the_way:  # a step before it stands in line
            self._on_the_way[request.id] = False
        elif request.id in self._waiting:
            _outside().run(self._line.withdraw, self._waiting[request.id])

    def give_back(self, lease: Lease, nodes: list[str], *, qpu: bool) -> None:
        if self._driver.is_dead:
            return
        for node in nodes:
            del self._nodes[node]
        if qpu and lease.device is not None:
            self._shares[lease.device] -= lease.shares
        _outside().run(lambda: self._line.give_back(lease, nodes, qpu=qpu))

    def __getattr__(self, name: str) -> Any:
        """What it only asks is answered by the cluster."""
        return getattr(self._line, name)

    def reap(self) -> None:
        """What Slurm does with the jobs of a driver that is known to be dead."""
        self._is_reaped = True
        self._on_the_way = dict.fromkeys(self._on_the_way, False)
        for asked in list(self._waiting.values()):
            self._line.withdraw(asked)
        nodes, self._nodes = list(self._nodes), {}
        shares, self._shares = self._shares, {}
        self._line.give_back(Lease("", "", nodes), nodes, qpu=False)
        for device, count in shares.items():
            self._line.give_back(Lease("", "", [], device, count), [], qpu=True)


class OwnSession:
    """A session that one driver has opened."""

    def __init__(self, broker: OwnBroker, session: Session) -> None:
        self.id, self.device, self.hold = session.id, session.device, session.hold
        self._broker = broker
        self._session = session

    async def close(self) -> None:
        await self._broker.call(self._session.close())
        self._broker.sessions.pop(self.id, None)


class OwnBroker:
    """The broker as one driver reaches it."""

    def __init__(self, driver: Driver, broker: InProcessBroker) -> None:
        self._driver = driver
        self._broker = broker
        self._calls: dict[asyncio.Task[Any], bool] = {}
        self.sessions: dict[str, bool] = {}
        self.choose, self.takes, self.expected_wait_s = broker.choose, broker.takes, broker.expected_wait_s
        self.is_up, self.returns, self.describe = broker.is_up, broker.returns, broker.describe

    @property
    def holds_nothing(self) -> bool:
        return not self._calls and not self.sessions

    async def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Let the broker do it: it goes on if the driver dies."""
        if self._driver.is_dead:
            coroutine.close()
            await _for_ever()
        call = asyncio.get_running_loop().create_task(coroutine, context=_outside())
        self._calls[call] = True
        call.add_done_callback(self._calls.pop, context=_outside())
        return await call

    async def open_session(self, device: str, hold: QpuHold, job: str, engine_id: str | None = None) -> Session:
        opened: list[Session] = []

        async def open_it() -> None:
            opened.append(await self._broker.open_session(device, hold, job))
            self.sessions[opened[0].id] = True

        try:
            await self.call(open_it())
        except asyncio.CancelledError:
            for session in opened:  # it came just as the driver no longer wanted it
                await OwnSession(self, session).close()
            raise
        return OwnSession(self, opened[0])

    async def run(self, work: QuantumWork, device: str, session: Session | None, recorder: Recorder) -> Any:
        return await self.call(self._broker.run(work, device, session, recorder))

    async def close(self) -> None:
        """The broker outlives the driver."""

    async def expire(self) -> None:
        """What the broker does when it has not heard of a driver for too long."""
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for session in self.sessions:
            self._broker.close_session(session)
        self.sessions.clear()
