"""What happens to a broker meanwhile: it is killed, stopped, drained, told to read its config again; so is Slurm."""

from __future__ import annotations

import asyncio
import signal
import time
from random import Random

from benchmarks.soak.cluster import Cluster
from benchmarks.soak.findings import Findings
from benchmarks.soak.patience import within
from benchmarks.soak.place import SHARED, Place

from qloom.broker.client.client import BrokerClient

DISTURBANCE_S = 240.0  # of one, with the restart of whatever it ended


class Disturbances:
    """One after the other, with pauses; `gentle` leaves the process alone, so that its memory can be compared."""

    def __init__(
        self, place: Place, findings: Findings, random: Random, pace_s: float, cluster: Cluster | None = None
    ) -> None:
        self._place, self._findings, self._random = place, findings, random
        self._pace_s, self._cluster = pace_s, cluster
        self._left: list[str] = []
        self.gentle = False
        self.calm = asyncio.Event()  # set once `gentle` counts: there was at least one kill, and none will follow
        self.stop, self.stopped = False, asyncio.Event()

    async def go_on(self) -> None:
        """Disturb until told to stop."""
        async with self._place.client("admin") as admin:
            while not self.stop:
                if self.gentle and self._findings.counts["kills"]:
                    self.calm.set()
                await asyncio.sleep(self._random.uniform(0.3, 1.0) * self._pace_s)
                kind = self._next()
                async with within(DISTURBANCE_S, f"the disturbance of {self._place.name}", kind):
                    await self._disturb(kind, admin)
        self.stopped.set()

    async def _disturb(self, kind: str, admin: BrokerClient) -> None:
        match kind:
            case "kill":
                await self._restart(signal.SIGKILL)
            case "restart":
                await self._restart(signal.SIGTERM)
            case "drain":
                self._place.outages.begin("drain")
                await admin.drain(SHARED)
                await asyncio.sleep(self._random.uniform(0.1, 0.5) * self._pace_s)
                await admin.drain(SHARED, False)
                self._place.outages.end("drain")
                self._findings.counts["drains"] += 1
            case "reload":
                self._place.tell(signal.SIGHUP)
                self._findings.counts["SIGHUPs"] += 1
            case "slurmctld":
                assert self._cluster is not None
                await self._cluster.kill_controller(self._random.uniform(0.2, 0.6) * self._pace_s)
                self._findings.counts["kills of slurmctld"] += 1

    def _next(self) -> str:
        """Each kind comes once before any comes again, so that a short soak has them all."""
        if not self._left:
            kinds = ["restart", "drain", "reload"] + (["slurmctld"] if self._cluster is not None else [])
            self._left = [*self._random.sample(kinds, len(kinds)), "kill"]
        kind = self._left.pop()
        return "drain" if self.calm.is_set() and kind in ("kill", "restart") else kind

    async def _restart(self, number: signal.Signals) -> None:
        self._place.outages.begin("restart")
        self._place.outages.kills_s.append(time.time())
        code = await self._place.end(number)
        if number is signal.SIGTERM and code != 0:
            how = "did not end" if code is None else f"ended with {code}"
            self._findings.violate(f"the broker was told to stop and {how}:\n{self._place.last_lines()}")
        await asyncio.sleep(self._random.uniform(0.0, 0.2) * self._pace_s)
        await self._place.start()
        self._place.outages.end("restart")
        self._findings.counts["kills" if number is signal.SIGKILL else "restarts"] += 1
