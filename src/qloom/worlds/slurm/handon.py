"""The end of one link of a chain: no driver waits in line; the next job is submitted and this one ends."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

from qloom.errors import InputError
from qloom.ports import Request
from qloom.site import Site
from qloom.worlds.slurm.batch import Batch
from qloom.worlds.slurm.client import Client

LOOK_S = 0.05


class HandOn:
    """A request that the next job of the chain will start with. It is never granted here."""

    def __init__(self, chain: Chain, request: Request, shares: int) -> None:
        self.name = f"qloom.{chain.directory.name}"
        self._chain = chain
        self._request = request
        self._shares = shares
        self._withdrawn = asyncio.Event()

    def withdraw(self) -> None:
        """Take the request back; too late if the next job was submitted."""
        self._withdrawn.set()

    async def granted(self) -> None:
        """Wait until this job holds nothing more, submit the next one, and wait for the end."""
        while self._chain.holds() and not self._withdrawn.is_set():  # noqa: ASYNC110  many places give back
            await asyncio.sleep(LOOK_S)
        if not self._withdrawn.is_set():
            await self._chain.hand_on(self._request, self._shares)
        await self._withdrawn.wait()


class Chain:
    """Where a run goes on when its driver ends. What was done is in the journal; the next job replays it."""

    def __init__(
        self,
        site: Site,
        directory: Path,
        client: Client,
        own_id: str | None,
        holds: Callable[[], bool],
        stop: Callable[[], object],
    ) -> None:
        self.directory = directory
        self.holds = holds
        self.next_job: str | None = None
        self._site = site
        self._client = client
        self._own_id = own_id
        self._stop = stop
        self._handing_on = False

    async def hand_on(self, request: Request, shares: int) -> None:
        """Submit the job that starts with this request, once, and end the driver."""
        if self._handing_on:
            return
        self._handing_on = True
        self.next_job = await submit(
            Batch(self.directory.name, "chain", request, shares, self._own_id),
            self._site,
            self.directory,
            self._client,
        )
        self._stop()


async def submit(batch: Batch, site: Site, directory: Path, client: Client) -> str:
    """Write the script into the directory of the run and give it to Slurm; the id of the job."""
    script = directory / f"{batch.driver}.sh"
    script.write_text(batch.script(site, str(directory / "logs")))
    name = f"qloom.{batch.run}.{uuid.uuid4().hex[:8]}"  # no other job has it

    async def submitted_after_all() -> str | None:
        return next((row.whole for row in await client.jobs() if row.name == name), None)

    answer = await client.call("sbatch", "--parsable", f"--job-name={name}", str(script), unless=submitted_after_all)
    if answer.code != 0:
        raise InputError(f"Slurm refuses the job: {answer.complaint}", hint=f"see {script} and [slurm] of the site")
    return answer.stdout.strip().partition(";")[0]
