"""What a run asks Slurm for: a `salloc` for each request, until it is granted, withdrawn or ended by others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qloom.errors import AllocationEnded
from qloom.ports import Clock, Request
from qloom.site import Site
from qloom.slurm.arguments import components, salloc
from qloom.slurm.client import Client
from qloom.slurm.endings import wait_past_completing
from qloom.slurm.salloc import Salloc
from qloom.slurm.squeue import QueuedJob
from qloom.slurm.tags import Tag
from qloom.worlds.slurm.ends import engine_us
from qloom.worlds.slurm.lease_jobs import LeaseJob, LeaseJobs

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
