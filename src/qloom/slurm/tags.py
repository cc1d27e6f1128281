"""Whose a Slurm job is: every job carries the run, and the host, boot and process of the driver that holds it.

By these tags the jobs of drivers that have died are found, and given back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields

from qloom.errors import JobError
from qloom.identity import Process, own_process
from qloom.slurm.commands import call_once
from qloom.slurm.squeue import FORMAT, QueuedJob, read_jobs

PREFIX = "qloom"


@dataclass(frozen=True)
class Tag:
    """One driver: its run, and the `Process` that it is."""

    run: str
    host: str
    boot: str
    namespace: str
    pid: str
    started: str
    within: str = ""  # the Slurm job that the driver was submitted as, if it was: the two end together

    @property
    def comment(self) -> str:
        """The tag as the comment of a Slurm job."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return " ".join([PREFIX, *(f"{name}={value}" for name, value in values.items() if value)])

    def job_name(self, request: str) -> str:
        """The name of a job: it says which run and which allocation, and no other job has it."""
        return f"{PREFIX}.{self.run}.{request}.{self.pid}"

    def is_dead(self, in_queue: Collection[str] = ()) -> bool:
        """Whether its driver is known to have ended, by the jobs that have not; one that is out of sight is not."""
        if self.within:
            return self.within not in in_queue
        return Process(self.host, self.boot, self.namespace, self.pid, self.started).is_dead()


def own_tag(run: str, within: str = "") -> Tag:
    """The tag of this process."""
    return Tag(run=run, within=within, **asdict(own_process()))


def read_tag(comment: str) -> Tag | None:
    """The tag in a comment, or None if the job is none of ours."""
    first, *rest = comment.split() or [""]
    found = dict(word.partition("=")[::2] for word in rest)
    names = [field.name for field in fields(Tag)]
    if first != PREFIX or not all(found.get(name) for name in names if name != "within"):
        return None
    return Tag(**{name: found.get(name, "") for name in names})


def leaked() -> list[QueuedJob]:
    """This user's jobs whose driver is known to have ended; never those of a live one, or of one out of sight."""
    answer = call_once("squeue", "-h", "--me", "-o", FORMAT)
    if answer.code != 0:
        raise JobError(f"squeue says: {answer.complaint}", hint="scontrol ping")
    rows = read_jobs(answer.stdout)
    in_queue = [row.leader for row in rows]
    live = [row for row in rows if row.state.stage != "ended"]
    return [row for row in live if (tag := read_tag(row.comment)) is not None and tag.is_dead(in_queue)]


def reap() -> list[QueuedJob]:
    """Cancel them; returns what was cancelled."""
    rows = leaked()
    if rows:
        answer = call_once("scancel", *dict.fromkeys(row.leader for row in rows))
        if answer.code != 0:
            raise JobError(f"scancel says: {answer.complaint}")
    return rows
