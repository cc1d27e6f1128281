"""What a run asks Slurm for, and one look at the queue for all of it.

There is a `salloc` for each request, until it is granted, withdrawn or ended by others. The look, now and then, shows
why requests wait, and which jobs nobody knows any more.

Grants are not found here: Slurm announces them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from qloom.aio import TaskScope, report_failure
from qloom.errors import AllocationEnded, QloomError
from qloom.journal.events import LookFailed, StillWaits
from qloom.site import Site
from qloom.slurm.arguments import components, salloc
from qloom.slurm.client import Client
from qloom.slurm.endings import wait_past_completing
from qloom.slurm.salloc import Salloc
from qloom.slurm.squeue import QueuedJob, most_telling, reason_in_words
from qloom.slurm.tags import Tag
from qloom.world import Clock, Request
from qloom.worlds.slurm.lease_jobs import ChangeRecorder, LeaseJob, LeaseJobs, engine_us

# Records that Slurm has ended a job, which was for a job of the run and a lease; returns the error to raise.
ReportTaken = Callable[[LeaseJob, QueuedJob | None, str, str], AllocationEnded]


@dataclass(frozen=True)
class GrantedJob:
    """A Slurm job that was granted, and when it started by the clock of the run."""

    job: LeaseJob
    start_us: int | None


class SlurmRequests:
    """The requests of a run that have not been answered, and the names of all jobs that it has ever asked for."""

    def __init__(
        self, site: Site, tag: Tag, client: Client, clock: Clock, held: LeaseJobs, report_taken: ReportTaken
    ) -> None:
        self._site = site
        self._tag = tag
        self._client = client
        self._clock = clock
        self._held = held
        self._report_taken = report_taken
        self._open: dict[str, tuple[Request, Salloc]] = {}  # by request
        self._names: dict[str, None] = {}

    def __len__(self) -> int:
        """How many requests have not been answered."""
        return len(self._open)

    def open(self) -> list[tuple[Request, str]]:
        """Requests that have not been answered, with the names of their Slurm jobs."""
        return [(request, asked.name) for request, asked in self._open.values()]

    def has_named(self, name: str) -> bool:
        """Whether a Slurm job of this name was ever asked for."""
        return name in self._names

    def withdraw(self, request: Request) -> None:
        """Take a request back, if it has not been answered."""
        if request.id in self._open:
            self._open[request.id][1].withdraw()

    def withdraw_all(self) -> None:
        """Take all requests back."""
        for _, asked in self._open.values():
            asked.withdraw()

    async def ask(self, request: Request, shares: int) -> GrantedJob | None:
        """Wait in Slurm's queue for one job; None if the request was withdrawn."""
        asked = self._salloc(request, shares)
        self._open[request.id] = (request, asked)
        try:
            id = await asked.granted()
            return None if id is None else await self._read_grant(request, shares, id, asked)
        finally:
            del self._open[request.id]

    def _salloc(self, request: Request, shares: int) -> Salloc:
        name = self._tag.job_name(request.id)
        self._names[name] = None
        before = [job.id for job in self._held.of(request.after.id)] if request.after is not None else []
        remaining_s = self._held.remaining_s(request.lease) if request.lease is not None else None
        words = salloc(components(self._site, request, shares, remaining_s), name, self._tag.comment, before)
        return Salloc(self._client, words, name, lambda: request.eligible)

    async def _read_grant(self, request: Request, shares: int, id: str, asked: Salloc) -> GrantedJob:
        """Read which nodes were granted; raises what `report_taken` returns if the job has ended meanwhile."""
        observed_us = self._clock.now_us()
        qpu = (f"{id}+1" if request.least_nodes else id) if shares else None
        job = LeaseJob(id, [], qpu, salloc=asked)
        queued = await wait_past_completing(self._client, job.classical)
        if queued is None or queued.state.stage != "holds":
            await asked.close()
            raise self._report_taken(job, queued, request.job, (request.lease or request).id)
        job.nodes = list(queued.nodes) if request.least_nodes else []
        job.end_s = queued.end_s
        return GrantedJob(job, engine_us(self._clock, observed_us, queued.start_s))


class QueueWatch:
    """Looks every `poll_s` while something is requested or held."""

    def __init__(
        self,
        client: Client,
        poll_s: float,
        requests: SlurmRequests,
        held: LeaseJobs,
        record: ChangeRecorder,
        qpu_is_away: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._client = client
        self._poll_s = poll_s
        self._qpu_is_away = qpu_is_away
        self._requests = requests
        self._held = held
        self._record = record
        self._scope = TaskScope(report_failure)
        self._scope.spawn(self._look())

    async def close(self) -> None:
        """Stop looking."""
        await self._scope.aclose()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            if not self._requests and not self._held.all():
                continue
            try:
                await self._look_once()
            except QloomError as error:  # the next look may be luckier
                self._record("watch", LookFailed(complaint=error.message))

    async def _look_once(self) -> None:
        jobs = await self._client.jobs()
        for request, name in self._requests.open():
            waiting = [job for job in jobs if job.name == name and job.state.stage == "waits"]
            if waiting and request.eligible:
                await self._record_wait(request, waiting)
        ends_s = {job.id: job.end_s for job in jobs}
        for held in self._held.all():
            held.end_s = ends_s.get(held.classical, held.end_s)  # a time limit can be changed
        await self._cancel_strays(jobs)

    async def _record_wait(self, request: Request, waiting: list[QueuedJob]) -> None:
        short = waiting[most_telling([job.reason for job in waiting])]
        reason, for_qpu = short.reason, short.id.endswith("+1")
        if request.device is not None and self._qpu_is_away and reason == "Resources" and await self._qpu_is_away():
            reason, for_qpu = "ReqNodeNotAvail", True  # Slurm gives the same reason as for a QPU that others hold
        if request.device is not None and request.least_nodes:
            request.waited_for = request.device if for_qpu else "nodes"
        lease = (request.lease or request).id
        waits = StillWaits(job=request.job, lease=lease, engine_id=short.leader, reason=reason_in_words(reason))
        self._record(request.id, waits)

    async def release_strays(self) -> None:
        """Cancel jobs again that were cancelled just before the controller was killed: it may bring them back."""
        if self._client.was_silent:
            await self._cancel_strays(await self._client.jobs())

    async def _cancel_strays(self, jobs: list[QueuedJob]) -> None:
        held = [job.id for job in self._held.all()]
        requested = [name for _, name in self._requests.open()]
        ours = [job for job in jobs if self._requests.has_named(job.name) and job.state.stage != "ended"]
        strays = [job.leader for job in ours if job.leader not in held and job.name not in requested]
        if strays:
            await self._client.cancel(*dict.fromkeys(strays))
