"""The Slurm jobs that drivers live in: the one around this process, and those that runs were handed to.

Their scripts, their submission, and the handover of a run to one.

The driver goes on with its run inside the allocation of the job. What it does there is no matter of this module.

It calls Slurm once for each question, before or after a run, and never waits for an answer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qloom.errors import InputError, JournalError, QloomError
from qloom.journal.queries import SlurmJob
from qloom.model import QpuHold
from qloom.site import Site
from qloom.slurm.arguments import components, core
from qloom.slurm.client import Client
from qloom.slurm.commands import call_once
from qloom.slurm.endings import how_it_ended
from qloom.slurm.facts import ClusterFacts, require_programs
from qloom.slurm.squeue import FORMAT, SlurmState, most_telling, read_jobs, read_state, reason_in_words
from qloom.world import Request

# The variable by which a driver knows the job around it: DEVICE:HOLD:SHARES, or nothing for a job without a QPU.
DRIVER_QPU = "QLOOM_DRIVER_QPU"
CORE = "core"  # its value for a driver that has a core and nothing else
MARK = "qloom-submitted"  # not the tag of a driver: nobody reaps what waits for its turn

DRIVER = "driver"  # the name of its lease


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


@dataclass(frozen=True)
class DriverJob:
    """The nodes and the QPU that the driver works with; none, if it has a core beside its allocations."""

    id: str
    nodes: tuple[str, ...]
    start_s: int | None  # since the epoch, as Slurm has it
    end_s: int | None
    qpu: str | None = None  # the job, or the component of a het job, that stands for the QPU
    device: str | None = None
    shares: int = 0
    hold: QpuHold = QpuHold.TASK
    core_of: str | None = None  # the node of which a driver beside its allocations has a core


def is_inside() -> bool:
    """Whether this process was submitted as the driver of a run."""
    return "SLURM_JOB_ID" in os.environ and DRIVER_QPU in os.environ


def enclosing_job() -> str | None:
    """The Slurm job that this process runs in."""
    return os.environ.get("SLURM_JOB_ID")


def read_driver_job() -> DriverJob:
    """Read the job around this process: its nodes from Slurm, its QPU from the variable that its script has set."""
    if not is_inside():
        raise InputError("this driver is not inside a Slurm job of its own", hint="qloom submit, or --driver here")
    id = os.environ["SLURM_JOB_ID"]
    answer = call_once("squeue", "-h", "-t", "all", "-o", FORMAT, "-j", id)
    jobs = {job.id: job for job in read_jobs(answer.stdout)}
    first = jobs.get(f"{id}+0") or jobs.get(id)
    if first is None:
        raise InputError(f"Slurm does not know job {id}: {answer.complaint}", hint="qloom submit it again")
    asked = os.environ[DRIVER_QPU]
    if asked == CORE:
        return DriverJob(first.leader, (), first.start_s, first.end_s, core_of=first.nodes[0])
    if not asked:
        return DriverJob(first.leader, first.nodes, first.start_s, first.end_s)
    device, hold, shares = asked.rsplit(":", 2)
    # A job without a second component is a QPU's alone: the node that stands for it computes nothing.
    nodes, qpu = (first.nodes, f"{id}+1") if f"{id}+1" in jobs else ((), first.leader)
    return DriverJob(first.leader, nodes, first.start_s, first.end_s, qpu, device, int(shares), QpuHold(hold))


# Jobs that runs were handed to


def look(id: str) -> SlurmJob:
    """Whether a job waits, and for what, runs, or has ended."""
    try:
        require_programs()
        answer = call_once("squeue", "-h", "-t", "all", "-o", FORMAT, "-j", id)
    except QloomError as error:
        return SlurmJob(id, "unknown", error.message)
    if answer.code != 0 and not answer.says_gone:
        return SlurmJob(id, "unknown", f"squeue says: {answer.complaint}")
    jobs = read_jobs(answer.stdout)
    if any(job.state.stage == "holds" for job in jobs):
        return SlurmJob(id, "holds", "it is starting")
    if reasons := [job.reason for job in jobs if job.state.stage == "waits"]:
        return SlurmJob(id, "waits", reason_in_words(reasons[most_telling(reasons)]))
    is_known = jobs and jobs[0].state.name != "COMPLETING"  # which hides how it ended
    state = jobs[0].state if is_known else _state_in_accounting(id)
    words = how_it_ended(None) if state is None else state.words
    return SlurmJob(id, "ended", f"{words} ({state.what_to_do})" if state is not None and state.what_to_do else words)


def _state_in_accounting(id: str) -> SlurmState | None:
    """How a job ended that the controller has forgotten, if the site keeps accounts."""
    if shutil.which("sacct") is None:
        return None
    lines = call_once("sacct", "-X", "-n", "-P", "-j", id, "-o", "State").stdout.splitlines()
    return read_state(lines[0]) if lines else None


def stages(ids: Sequence[str]) -> dict[str, str]:
    """Whether each job waits, holds its nodes or has ended, by one call; empty if Slurm does not answer."""
    try:
        require_programs()
        answer = call_once("squeue", "-h", "-o", FORMAT, "-j", ",".join(ids))
    except QloomError:
        return {}
    if answer.code != 0 and not answer.says_gone:
        return {}
    found = {job.leader: job.state.stage for job in reversed(read_jobs(answer.stdout))}
    return {id: found.get(id, "ended") for id in ids}


def require_ended(id: str, run: str) -> None:
    """Refuse to go on with a run that a job has, or will have."""
    job = look(id)
    if job.stage == "ended":
        return
    what = {"waits": "waits for its turn", "holds": "is still running"}.get(job.stage, f"may still run ({job.words})")
    raise JournalError(f"{run} {what}", hint=f"it is Slurm job {id}: scancel {id} first")
