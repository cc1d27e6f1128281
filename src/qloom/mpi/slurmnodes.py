"""The nodes that a root holds on Slurm.

An MPI step cannot span two Slurm jobs, and Slurm's merge of two jobs books too few nodes. So a program grows by
going over to a second, larger allocation, and the first is given back; it shrinks by `scontrol`, or by going back to
the job that the root itself runs in, which is kept all the time.

The way to Slurm is that of the world `slurm`: a controller that is down is asked again. Its calls run in a loop of
their own, for as long as the root waits for them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from qloom.aio import TaskScope
from qloom.errors import InputError, JobError
from qloom.mpi.launch import Launch, srun
from qloom.site import Slurm
from qloom.slurm.arguments import common, salloc
from qloom.slurm.client import Client
from qloom.slurm.endings import how_it_ended
from qloom.slurm.salloc import Salloc
from qloom.slurm.tags import Tag

PATIENCE_S = 300.0  # for a controller that is down, where the root cannot go on without it
MOMENT_S = 5.0  # the same where it can: what is given back then is so later
LOOK_S = 0.005
T = TypeVar("T")


@dataclass
class RootJob:
    """A Slurm job of the root, and its nodes."""

    id: str
    nodes: list[str]
    encloses_root: bool = False  # it is shrunk, never ended
    salloc: Salloc | None = None  # what holds it


class SlurmNodes:
    """Jobs of Slurm: one that the ranks run in, one that the root runs in, one that was asked for."""

    def __init__(self, slurm: Slurm, tag: Tag, program: str = "program", ranks_per_node: int = 1) -> None:
        self._slurm = slurm
        self._tag = tag
        self._names = (tag.job_name(f"{program}-{number}") for number in itertools.count(1))
        self._ranks_per_node = ranks_per_node
        self._runner: asyncio.Runner
        self._scope: TaskScope
        self._client: Client
        self._used: RootJob | None = None
        self._enclosing: RootJob | None = None
        self._asked: tuple[Salloc, asyncio.Task[RootJob | None]] | None = None
        self._granted: RootJob | None = None
        self._leaving: dict[asyncio.Task[None], str] = {}  # what is being given back
        self._ended = False

    @property
    def in_use(self) -> int:
        """How many nodes the ranks have."""
        return len(self._used.nodes) if self._used is not None else 0

    def begin(self, nodes: int) -> None:
        """Use the job that we are in, or ask for an allocation."""
        self._runner = asyncio.Runner()
        self._scope = TaskScope()
        self._client = Client(most_calls_per_s=self._slurm.most_calls_per_s)
        own = os.environ.get("SLURM_JOB_ID")
        if own is not None:
            self._enclosing = self._used = RootJob(own, self._answer(self._nodes_of(own)), encloses_root=True)
            if len(self._enclosing.nodes) < nodes:
                raise InputError(
                    f"job {own} has {len(self._enclosing.nodes)} nodes and the program starts on {nodes}"
                )
            self.shrink(nodes)
            return
        self.ask(nodes, nodes)

    def launch(self, ranks_per_node: int) -> Launch:
        """A step over the nodes in use; srun itself would not wait for the controller."""
        used = self._used
        assert used is not None  # noqa: S101  begun
        now = self._answer(self._nodes_of(used.id))
        if lost := [node for node in used.nodes if node not in now]:
            raise JobError(f"Slurm job {used.id} has lost {', '.join(lost)}", hint="run it again to go on")
        return srun(len(used.nodes) * ranks_per_node, used.nodes, used.id)

    def ask(self, least: int, most: int) -> None:
        """Ask for one allocation of all the nodes; fewer than `most` are welcome."""
        partition = [f"--partition={self._slurm.partition}"] if self._slurm.partition else []
        part = [*partition, f"--nodes={least}-{most}", f"--mincpus={self._ranks_per_node}", *common(self._slurm)]
        name = next(self._names)  # a request that the controller did not confirm is withdrawn by its name
        request = Salloc(self._client, salloc([part], name, self._tag.comment), name, lambda: True)
        self._asked = request, self._start(self._allocation(request))

    def arrived(self) -> int | None:
        """How many nodes the allocation has that was asked for, once it is granted."""
        if self._asked is not None:
            self._runner.run(asyncio.sleep(LOOK_S))
            if self._asked[1].done():
                self._granted = self._take_grant(self._asked[1])
        return len(self._granted.nodes) if self._granted is not None else None

    def withdraw(self) -> None:
        """Leave the queue; what was granted in the same moment is given back."""
        if self._asked is not None:
            (request, asked), self._asked = self._asked, None
            request.withdraw()
            self._give_back(self._leave_queue(asked), "the allocation that it waited for")
        if self._granted is not None:
            self._end_job(self._granted)
            self._granted = None

    def take(self) -> None:
        """Go over to the allocation that was asked for."""
        assert self._granted is not None  # noqa: S101  it has arrived
        before, self._used, self._granted = self._used, self._granted, None
        self._end_job(before)

    def shrink(self, nodes: int) -> None:
        """Go back to our own job if it is large enough, drop what is too much, and read back what is left."""
        if self._enclosing is not None and self._used is not self._enclosing and len(self._enclosing.nodes) >= nodes:
            before, self._used = self._used, self._enclosing
            self._end_job(before)
        used = self._used
        assert used is not None  # noqa: S101  begun
        if len(used.nodes) > nodes:
            answer = self._answer(self._client.call("scontrol", "update", f"JobId={used.id}", f"NumNodes={nodes}"))
            used.nodes = self._answer(self._nodes_of(used.id))
            if len(used.nodes) != nodes:
                said = f": {answer.complaint}" if answer.code != 0 else ""
                raise JobError(f"job {used.id} was to keep {nodes} nodes and has {len(used.nodes)}{said}")

    def end(self, *, failed: bool = False) -> None:
        """Give everything back but the job that we are in; what a program that failed has used is cancelled."""
        if self._ended:
            return
        self._ended = True
        try:
            self.withdraw()
            used, self._used = self._used, None
            self._end_job(used, failed=failed)
            self._settle(PATIENCE_S)
            if left := list(self._leaving.values()):
                raise JobError(f"Slurm does not answer: {', '.join(left)} may still be held", hint="qloom slurm reap")
        finally:
            self._leaving.clear()
            self._runner.close()
            self._client.close()

    async def _allocation(self, request: Salloc) -> RootJob | None:
        """What is granted; None if the request was withdrawn before. What cannot be used does not stay."""
        id = await request.granted()
        if id is None:
            return None
        try:
            return RootJob(id, await self._nodes_of(id), salloc=request)
        except BaseException:
            await self._client.cancel(id)
            await request.close()
            raise

    async def _nodes_of(self, id: str) -> list[str]:
        """The nodes of a job, or of the first component of a het job, as Slurm has them now."""
        rows = await self._client.jobs(id)
        row = next((row for row in rows if row.id == f"{id}+0"), rows[0] if rows else None)
        if row is None or row.state.stage != "holds":
            raise JobError(f"Slurm job {id} {how_it_ended(row)}")
        return list(row.nodes)

    def _take_grant(self, asked: asyncio.Task[RootJob | None]) -> RootJob | None:
        self._asked = None
        try:
            return asked.result()
        except InputError as error:
            if self._used is None:
                raise
            raise JobError(error.message) from None  # a program that runs already goes on without

    def _end_job(self, held: RootJob | None, *, failed: bool = False) -> None:
        if held is not None and not held.encloses_root:
            self._give_back(self._release(held, failed=failed), f"job {held.id}")

    async def _release(self, held: RootJob, *, failed: bool = False) -> None:
        """End a job by the exit of what holds it; cancel it if that was not enough, or if the program has failed."""
        if held.salloc is not None and not failed:
            await held.salloc.complete()
        await self._client.cancel(held.id)
        if held.salloc is not None:
            await held.salloc.close()

    async def _leave_queue(self, asked: asyncio.Task[RootJob | None]) -> None:
        try:
            held = await asked
        except (InputError, JobError):
            return  # it was not granted
        if held is not None:
            await self._release(held)

    def _give_back(self, giving: Coroutine[Any, Any, None], what: str) -> None:
        self._leaving[self._start(giving)] = what
        self._settle(MOMENT_S)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task, which goes on whenever the root waits for Slurm."""

        async def start() -> asyncio.Task[T]:
            return self._scope.start(work)

        return self._runner.run(start())

    def _settle(self, seconds: float) -> None:
        """Wait until all is given back, or for so long."""
        if not self._leaving:
            return
        done, _ = self._runner.run(asyncio.wait(self._leaving, timeout=seconds))
        for giving in done:
            del self._leaving[giving]
        for giving in done:
            giving.result()

    def _answer(self, call: Coroutine[Any, Any, T]) -> T:
        """What Slurm answers."""

        async def answer() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await call

        try:
            return self._runner.run(answer())
        except TimeoutError:
            raise JobError(f"Slurm does not answer within {PATIENCE_S:g} s", hint="scontrol ping") from None
