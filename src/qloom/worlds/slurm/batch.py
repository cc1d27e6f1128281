"""BatchJob jobs that carry a driver into Slurm: their scripts, their submission, and the handover of a run to one.

The driver goes on with its run inside the allocation of the job. What it does there is no matter of this module.
"""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qloom.errors import InputError
from qloom.ports import Request
from qloom.site import Site
from qloom.slurm.arguments import components, core
from qloom.slurm.client import Client
from qloom.slurm.facts import ClusterFacts

# The variable by which a driver knows the job around it: DEVICE:HOLD:SHARES, or nothing for a job without a QPU.
DRIVER_QPU = "QLOOM_DRIVER_QPU"
CORE = "core"  # its value for a driver that has a core and nothing else
MARK = "qloom-submitted"  # not the tag of a driver: nobody reaps what waits for its turn


@dataclass(frozen=True)
class BatchJob:
    """A Slurm job that goes on with a run: what it asks for, and where its driver lives."""

    run: str
    driver: str
    request: Request | None  # None: a core for the driver, which asks for its allocations from there
    shares: int = 0
    after: str | None = None  # the job that hands the run on: only if it ends well is this one started

    def script(self, site: Site, directory: str) -> str:
        """The text for `sbatch`; `directory` is where its output goes."""
        asked = [core(site.slurm)] if self.request is None else components(site, self.request, self.shares)
        first, *others = asked
        lines = ["#!/usr/bin/env bash", *_directives([*first, *self._tags(directory)])]
        for component in others:
            lines += ["#SBATCH hetjob", *_directives(component)]
        if home := os.environ.get("QLOOM_HOME"):
            lines.append(f"export QLOOM_HOME={shlex.quote(str(Path(home).absolute()))}")
        lines.append(f"export {DRIVER_QPU}={shlex.quote(self._qpu())}")
        python = shlex.quote(site.slurm.python or sys.executable)
        lines.append(f"exec {python} -m qloom resume {shlex.quote(self.run)} --driver {self.driver} --quiet")
        return "\n".join(lines) + "\n"

    def _qpu(self) -> str:
        request = self.request
        if request is None:
            return CORE
        return f"{request.device}:{request.qpu.value}:{self.shares}" if self.shares else ""

    def _tags(self, directory: str) -> list[str]:
        tags = [
            f"--job-name=qloom.{self.run}",
            f"--comment={MARK} run={self.run}",
            f"--chdir={os.getcwd()}",  # where the user is: programs may name files beside them
            f"--output={directory}/slurm-%j.out",
            "--no-requeue",  # the journal says how far it came: qloom resume
        ]
        return tags + ([f"--dependency=afterok:{self.after}", "--kill-on-invalid-dep=yes"] if self.after else [])


def _directives(words: Sequence[str]) -> list[str]:
    return [f"#SBATCH {_quoted(word)}" for word in words]


def _quoted(word: str) -> str:
    """As sbatch reads it: quotes around what holds a blank."""
    name, equals, value = word.partition("=")
    return f'{name}{equals}"{value}"' if " " in value else word


class SlurmHandover:
    """Where a run goes on when its driver ends. What was done is in the journal; the next job replays it."""

    def __init__(
        self,
        site: Site,
        facts: ClusterFacts,
        directory: Path,
        client: Client,
        driver: str,
        driver_id: str | None,
        stop: Callable[[], object],
    ) -> None:
        self.next_job: str | None = None
        self._site = site
        self._facts = facts
        self._directory = directory
        self._client = client
        self._driver = driver
        self._driver_id = driver_id
        self._stop = stop

    async def submit(self, request: Request) -> None:
        """Submit the job that begins with this request; Slurm starts it when this driver's job has ended well."""
        batch = BatchJob(self._directory.name, self._driver, request, self._facts.shares_of(request), self._driver_id)
        self.next_job = await submit_batch(batch, self._site, self._directory, self._client)

    async def withdraw(self) -> None:
        """Cancel the job that was submitted."""
        if self.next_job is not None:
            next_job, self.next_job = self.next_job, None
            await self._client.cancel(next_job)

    def end_driver(self) -> None:
        """End this driver."""
        self._stop()


async def submit_batch(batch: BatchJob, site: Site, directory: Path, client: Client) -> str:
    """Write the script into the directory of the run and submit it; returns the id of the job."""
    script = directory / f"{batch.driver}.sh"
    script.write_text(batch.script(site, str(directory / "logs")))
    name = f"qloom.{batch.run}.{uuid.uuid4().hex[:8]}"  # no other job has it

    async def submitted_after_all() -> str | None:
        return next((job.leader for job in await client.jobs() if job.name == name), None)

    answer = await client.call("sbatch", "--parsable", f"--job-name={name}", str(script), unless=submitted_after_all)
    if answer.code != 0:
        raise InputError(f"Slurm refuses the job: {answer.complaint}", hint=f"see {script} and [slurm] of the site")
    return answer.stdout.strip().partition(";")[0]
