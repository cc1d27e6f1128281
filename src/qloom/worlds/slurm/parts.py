"""The Slurm jobs of a lease, and the workers on their nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qloom.journal.event import Record
from qloom.ports import Clock
from qloom.slurm.client import FIRST_PAUSE_S, LONGEST_PAUSE_S, Client, controller_is_down
from qloom.slurm.pace import Urgency
from qloom.slurm.salloc import Salloc
from qloom.worlds.process import WorkerDied
from qloom.worlds.slurm.step import StepWorker
from qloom.worlds.workers import note_start

REVOKED = "job credential revoked"  # a node that was given back and regained, until the second has changed
REVOKED_S, REVOKED_PAUSE_S = 3.0, 0.2
MOST_TRIES = 8  # of a worker, while srun cannot reach what the driver can


@dataclass
class Part:
    """One Slurm job of a lease: the first one, or one by which it has grown."""

    id: str
    nodes: list[str]
    qpu: str | None = None  # the job, or the component of a het job, that stands for the QPU
    start_s: int | None = None  # Slurm's own time of its start
    end_s: int | None = None  # when its time limit ends it; None: never, or not known
    hold: Salloc | None = None  # what holds it; None: the job that the driver itself lives in

    @property
    def het(self) -> bool:
        """Whether nodes and QPU came as components of one job."""
        return self.qpu is not None and self.qpu != self.id

    @property
    def classical(self) -> str:
        """What `squeue` calls the component with the nodes."""
        return f"{self.id}+0" if self.het else self.id


class StepWorkers:
    """One worker for each node of each part, begun when the nodes come."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        set_up: dict[str, Any],
        logs: Path,
        python: str,
        record: Record | None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._set_up = set_up
        self._logs = logs
        self._python = python
        self._record = record
        self._known: dict[tuple[str, str], asyncio.Task[StepWorker]] = {}

    def begin(self, part: Part, node: str) -> asyncio.Task[StepWorker]:
        """The worker of a node, or its beginning; a dead one is replaced."""
        known = self._known.get((part.id, node))
        if known is None or (known.done() and (known.cancelled() or known.exception() or not known.result().alive)):
            known = self._known[part.id, node] = asyncio.ensure_future(self._start(part, node))
            known.add_done_callback(lambda started: started.cancelled() or started.exception())
            known.add_done_callback(note_start(node, self._clock, self._record))
        return known

    async def _start(self, part: Part, node: str) -> StepWorker:
        loop = asyncio.get_running_loop()
        until_s, pause_s, tries = loop.time() + REVOKED_S, FIRST_PAUSE_S, 0
        log = self._logs / f"{part.id}.{node}.log"
        while True:
            await self._client.turn(Urgency.USE)
            self._client.calls += 1
            known = log.stat().st_size if log.exists() else 0
            worker = StepWorker(part.id, node, self._set_up, log, het=part.het, python=self._python)
            try:
                await worker.ready
                return worker
            except asyncio.CancelledError:
                worker.kill()
                await worker.gone()
                raise
            except WorkerDied:
                await worker.gone()
                said = _of_srun(log, known)
                if controller_is_down(said) and tries < MOST_TRIES:
                    tries += 1
                    self._client.note_silence(f"no step on {node}")
                    await asyncio.sleep(pause_s)
                    await self._client.jobs(part.id)  # however long it takes until the controller answers
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                elif REVOKED in said.lower() and loop.time() < until_s:
                    await asyncio.sleep(REVOKED_PAUSE_S)
                else:
                    raise

    async def close(self, part: Part, nodes: Sequence[str]) -> None:
        """End the workers of some nodes, before these are given back."""
        known = [self._known.pop((part.id, node), None) for node in nodes]
        await asyncio.gather(*(_close(worker) for worker in known if worker is not None))


def _of_srun(log: Path, known: int) -> str:
    """What srun itself has complained of since; all else in a log is the user's own, whatever it says."""
    lines = log.read_bytes()[known:].decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if line.startswith("srun: error:"))


async def _close(starting: asyncio.Task[StepWorker]) -> None:
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await starting.result().close()
