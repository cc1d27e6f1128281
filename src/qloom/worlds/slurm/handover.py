"""Batch jobs that drivers live in: the first one of a run, and those that it is handed over to."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

from qloom.errors import InputError
from qloom.ports import Request
from qloom.site import Site
from qloom.slurm.client import Client
from qloom.slurm.facts import ClusterFacts
from qloom.worlds.slurm.batch import Batch


class SlurmHandover:
    """Where a run goes on when its driver ends. What was done is in the journal; the next job replays it."""

    def __init__(
        self,
        site: Site,
        facts: ClusterFacts,
        directory: Path,
        client: Client,
        driver: str,
        own_id: str | None,
        stop: Callable[[], object],
    ) -> None:
        self.next_job: str | None = None
        self._site = site
        self._facts = facts
        self._directory = directory
        self._client = client
        self._driver = driver
        self._own_id = own_id
        self._stop = stop

    async def submit(self, request: Request) -> None:
        """Submit the job that begins with this request; Slurm starts it when this driver's job has ended well."""
        batch = Batch(self._directory.name, self._driver, request, self._facts.shares_of(request), self._own_id)
        self.next_job = await submit(batch, self._site, self._directory, self._client)

    async def withdraw(self) -> None:
        """Cancel it."""
        if self.next_job is not None:
            next_job, self.next_job = self.next_job, None
            await self._client.cancel(next_job)

    def end_driver(self) -> None:
        """End this driver."""
        self._stop()


async def submit(batch: Batch, site: Site, directory: Path, client: Client) -> str:
    """Write the script into the directory of the run and give it to Slurm; the id of the job."""
    script = directory / f"{batch.driver}.sh"
    script.write_text(batch.script(site, str(directory / "logs")))
    name = f"qloom.{batch.run}.{uuid.uuid4().hex[:8]}"  # no other job has it

    async def submitted_after_all() -> str | None:
        return next((row.leader for row in await client.jobs() if row.name == name), None)

    answer = await client.call("sbatch", "--parsable", f"--job-name={name}", str(script), unless=submitted_after_all)
    if answer.code != 0:
        raise InputError(f"Slurm refuses the job: {answer.complaint}", hint=f"see {script} and [slurm] of the site")
    return answer.stdout.strip().partition(";")[0]
