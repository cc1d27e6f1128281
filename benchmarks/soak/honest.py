"""Clients that do what they should: each accepted task must be answered once, right, and in time."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from benchmarks.soak.cluster import Cluster
from benchmarks.soak.crew import Crew, Turn
from benchmarks.soak.findings import Findings
from benchmarks.soak.patience import Stuck
from benchmarks.soak.place import LIMIT_S, SHARED, Place

from qloom.broker.client.client import BrokerClient
from qloom.errors import QloomError, Refused

QUBO = {"linear": [["a", -1.0], ["b", -2.0]], "quadratic": [["a", "b", 3.0]], "offset": 0.0}
BEST = [["a", 0], ["b", 1]]
IN_SESSION = 6  # tasks of one session


class Honest:
    """Some clients of one broker."""

    def __init__(self, place: Place, findings: Findings, random: Random, cluster: Cluster | None = None) -> None:
        self._place, self._findings, self._random, self._cluster = place, findings, random, cluster
        self.crew = Crew()

    async def tasks(self, name: str) -> None:
        """Tasks from outside any session, one at a time."""
        await self._work(name, self._task)

    async def sessions(self, name: str) -> None:
        """Sessions, each with tasks one after the other; their waits are compared with the promise."""
        await self._work(name, self._session)

    async def _work(self, name: str, piece: Callable[[BrokerClient, str, Turn], Awaitable[None]]) -> None:
        async with self._place.client("honest") as broker:
            for number in itertools.count():
                turn = Turn()
                try:
                    async with self.crew.turn(name) as turn:
                        await piece(broker, f"{name}-{number}", turn)
                except (QloomError, Stuck) as error:
                    self._findings.violate(f"{name}, at {turn.doing}: {type(error).__name__}: {error}")

    async def _task(self, broker: BrokerClient, key: str, turn: Turn) -> None:
        device = self._random.choice(self._place.devices)
        solve = device != SHARED and self._random.random() < 0.05  # which may take longer than the other allows
        seconds = self._random.uniform(0.0, 0.05)
        form = {"kind": "delay", "body": {"key": key}, "seconds": seconds}
        if solve:
            form = {"kind": "qubo", "body": QUBO, "shots": 20, "seconds": 0.05, "options": {"seed": 1}}
        turn.now(f"the submission of task {key}")
        view = await broker.submit(form, device=device, key=key)
        self._findings.accept(key, view["id"], BEST if solve else {"key": key})
        if self._random.random() < 0.1:  # the answer was lost, so it is sent again
            again = await broker.submit(form, device=device, key=key)
            self._findings.accept(key, again["id"], None)
        turn.now(f"the result of task {key}, {view['id']}")
        view = await broker.wait(view["id"])
        if view["state"] != "done":
            self._findings.violate(f"task {key} is {view['state']}: {view['reason']}")
            return
        self._findings.answer(key, view["result"]["values"] if solve else view["result"])
        self._findings.counts["tasks"] += 1

    async def _session(self, broker: BrokerClient, key: str, turn: Turn) -> None:
        turn.now("a Slurm job")
        job = await self._cluster.begin_job() if self._cluster is not None else None
        try:
            turn.now(f"session {key}")
            view = await self._open(broker, key, job)
            if view is None:
                return
            turn.now(f"session {key}, {view['id']}, to be open")
            session = view["id"] if view["state"] != "waiting" else (await broker.wait_open(view["id"]))["id"]
            promised_s = float((await broker.device(SHARED))["promised_wait_s"])
            for number in range(IN_SESSION):
                turn.now(f"task {key}.{number} in session {session}")
                if not await self._session_task(broker, f"{key}.{number}", session, promised_s, job):
                    break
            turn.now(f"the end of session {session}")
            await broker.close_session(session)
            self._findings.counts["sessions"] += 1
        finally:
            if job is not None and self._cluster is not None:
                turn.now(f"the end of Slurm job {job}")
                await self._cluster.end_job(job)

    async def _open(self, broker: BrokerClient, key: str, job: str | None) -> dict[str, Any] | None:
        try:
            return await broker.ask_session(SHARED, key=key, slurm_job=job)
        except QloomError as error:
            if job is None:
                self._findings.violate(f"session {key} was refused: {error.message}")
            else:
                self._lost_job(key, job, error.message)
            return None

    async def _session_task(
        self, broker: BrokerClient, key: str, session: str, promised_s: float, job: str | None
    ) -> bool:
        """Run one task; returns whether the session is still there."""
        form = {"kind": "delay", "body": {"key": key}, "seconds": self._random.uniform(0.01, 0.1)}
        try:
            view = await broker.submit(form, session=session, key=key)
        except Refused as error:
            self._lost_job(key, job, error.message)
            return False
        self._findings.accept(key, view["id"], {"key": key})
        view = await broker.wait(view["id"])
        if view["state"] != "done":
            self._findings.accepted.pop(key)
            self._lost_job(key, job, f"{view['state']}: {view['reason']}")
            return False
        self._findings.answer(key, view["result"])
        self._findings.wait(key, view, promised_s, LIMIT_S, self._place.outages)
        self._findings.counts["tasks in sessions"] += 1
        return True

    def _lost_job(self, key: str, job: str | None, why: str) -> None:
        """A session ends early only if Slurm has lost its job, as a controller that is killed may."""
        if job is None or self._cluster is None or not self._cluster.may_have_lost(job):
            self._findings.violate(f"session of task {key} ended early: {why}")
        else:
            self._findings.counts["jobs lost by Slurm"] += 1
