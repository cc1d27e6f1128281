"""Who else is on the cluster, and so how long nodes take to come: nobody, a stated wait, or a queue that was seen."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from random import Random
from typing import Protocol

from qloom.errors import InputError
from qloom.lab.load.background import Background
from qloom.lab.load.engine import Engine
from qloom.lab.load.line import LoadedLine, Terms
from qloom.lab.load.workload import Hybrid, LoadJob
from qloom.lab.schedulers import make_policy
from qloom.lab.schedulers.state import FOREVER_US, State
from qloom.site import Site
from qloom.world import Clock, Request
from qloom.worlds.line import FifoLine, WorldLine
from qloom.worlds.partitions import Grant, Partitions


class Crowd(Protocol):
    """The other users of a cluster."""

    @property
    def nodes(self) -> int | None:
        """Of the cluster; None: as many as the site has."""

    def line(self, site: Site, clock: Clock, rng: Random) -> WorldLine:
        """The line that a job stands in, with the others drawn anew."""


@dataclass(frozen=True)
class Waits:
    """Every request for nodes waits for a time of this mean; nothing else is known of the others."""

    mean_s: float = 0.0
    drawn: bool = True  # at random, from an exponential distribution; else always the mean
    nodes: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.mean_s < float("inf"):
            raise InputError(
                f"a wait is a finite number of seconds of at least 0, not {self.mean_s}", hint="--wait 60"
            )

    def line(self, site: Site, clock: Clock, rng: Random) -> FifoLine:
        """A line in which nodes take their time."""
        shares = {qpu.name: qpu.shares for qpu in site.qpus}
        draw_s = (lambda: rng.expovariate(1 / self.mean_s)) if self.drawn and self.mean_s else (lambda: self.mean_s)
        return WaitingLine(Partitions(site.node_names, shares), clock, site.overheads.tick_s, draw_s)


class WaitingLine(FifoLine):
    """A line that a request for nodes enters only after a drawn time."""

    def __init__(self, partitions: Partitions, clock: Clock, tick_s: float, draw_s: Callable[[], float]) -> None:
        super().__init__(partitions, clock, tick_s)
        self._draw_s = draw_s
        self._coming: dict[str, asyncio.Future[bool]] = {}

    async def wait(self, request: Request) -> Grant | None:
        """Wait for the drawn time, then stand in line; None if the request is withdrawn before it is granted."""
        seconds = self._draw_s() if request.least_nodes else 0.0
        if seconds > 0:
            request.waited_for = "nodes"
            coming = self._coming[request.id] = asyncio.get_running_loop().create_future()
            cancel = self._clock.deadline(seconds, lambda: coming.set_result(True))
            wanted = await coming
            cancel()
            del self._coming[request.id]
            if not wanted:
                return None
        return await super().wait(request)

    def withdraw(self, request: Request) -> None:
        """Leave the line, or never enter it."""
        coming = self._coming.get(request.id)
        if coming is None:
            super().withdraw(request)
        elif not coming.done():
            coming.set_result(False)

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes."""
        return bool(self._coming) or super().nodes_are_short()


def loaded_line(
    jobs: Iterable[LoadJob], nodes: int, limit_s: float, interval_s: float, site: Site, clock: Clock
) -> LoadedLine:
    """A line among these jobs, under EASY; requests of the job itself have the time limit `limit_s`."""
    shares = [(qpu.name, qpu.shares) for qpu in site.qpus]
    engine = _Engine(State([("nodes", nodes), *shares]), make_policy("easy", interval_s=interval_s), "easy")
    own = LoadJob(0, 0.0, 0.0, 0, limit_s, hybrid=Hybrid(0, 0.0, 0.0))  # never over: the cluster goes on until it is
    return LoadedLine(
        Background(engine, ["nodes"], chain([own], jobs)), clock, "nodes", lambda request: Terms(limit_s)
    )


class _Engine(Engine):
    """Skips backfill passes before which nothing has changed: under EASY they start nobody."""

    def settle(self) -> None:
        """Ask the policy, if there is a reason to."""
        super().settle()
        if not (self.state.arrived or self.state.freed):
            self._next_tick_us = FOREVER_US


@dataclass(frozen=True)
class Seen:
    """A job of somebody else as a queue or its history shows it."""

    nodes: int
    limit_s: float  # above 0
    submit_s: float = 0.0  # seconds from now, so not above 0
    elapsed_s: float = 0.0
    state: str = "pending"  # or running, ended


@dataclass(frozen=True)
class Queue:
    """A queue as it stands, and those who came in the last `span_s`: the next ones are drawn from them."""

    nodes: int
    limit_s: float  # the time limit that the job's own requests have
    now: Sequence[Seen] = ()  # running, then pending in their order
    before: Sequence[Seen] = ()  # all who were submitted in the time that is remembered, in that order
    span_s: float = 0.0
    interval_s: float = 30.0  # between two backfill passes

    def line(self, site: Site, clock: Clock, rng: Random) -> LoadedLine:
        """The jobs that are there, with run times drawn, then arrivals as in a stretch of the past; under EASY."""
        jobs = chain(self._standing(rng), self._arrivals(rng))
        return loaded_line(jobs, self.nodes, self.limit_s, self.interval_s, site, clock)

    def _standing(self, rng: Random) -> list[LoadJob]:
        jobs = []
        for number, seen in enumerate(self.now, start=1):
            left_s = max(1.0, self._run_s(seen, rng) - seen.elapsed_s)
            limit_s = max(left_s, seen.limit_s - seen.elapsed_s)
            jobs.append(LoadJob(number, 0.0, left_s, min(seen.nodes, self.nodes), limit_s))
        return jobs

    def _arrivals(self, rng: Random) -> Iterator[LoadJob]:
        """Round and round through the past, from a random moment of it on."""
        if not self.before or self.span_s <= 0:
            return
        moment_s = rng.uniform(-self.span_s, 0.0)
        numbers = count(len(self.now) + 1)
        for turn in count():
            for seen in self.before:
                at_s = seen.submit_s - moment_s + turn * self.span_s
                if at_s >= 0:
                    run_s = self._run_s(seen, rng)
                    limit_s = max(run_s, seen.limit_s)
                    yield LoadJob(next(numbers), at_s, run_s, min(seen.nodes, self.nodes), limit_s)

    def _run_s(self, seen: Seen, rng: Random) -> float:
        """How long a job runs in all: known if it has ended, else a part of its limit, as of one that has."""
        if seen.state == "ended":
            return max(1.0, seen.elapsed_s)
        later = self._parts[bisect_right(self._parts, seen.elapsed_s / seen.limit_s) :]
        if later:
            return rng.choice(later) * seen.limit_s
        return rng.uniform(min(seen.elapsed_s, seen.limit_s), seen.limit_s)

    @cached_property
    def _parts(self) -> list[float]:
        """Which part of their limit those who have ended ran for."""
        return sorted(seen.elapsed_s / seen.limit_s for seen in self.before if seen.state == "ended")
