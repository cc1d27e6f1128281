"""One look at the queue for all jobs of a run, now and then: why requests wait, and which jobs nobody knows any more.

Grants are not found here: Slurm announces them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from qloom.aio import TaskScope, report_failure
from qloom.errors import QloomError
from qloom.journal.events import LookFailed, StillWaits
from qloom.ports import Request
from qloom.slurm.client import Client
from qloom.slurm.squeue import QueuedJob
from qloom.slurm.states import most_telling, reason_in_words
from qloom.worlds.slurm.ends import ChangeRecorder
from qloom.worlds.slurm.lease_jobs import LeaseJobs
from qloom.worlds.slurm.requests import SlurmRequests


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
            reason, for_qpu = "ReqNodeNotAvail", True  # Slurm does not always tell it from a QPU that others hold
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
