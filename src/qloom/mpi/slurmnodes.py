"""The nodes that a root holds on Slurm.

An MPI step cannot span two Slurm jobs, and Slurm's merge of two jobs books too few nodes. So a program grows by
going over to a second, larger allocation, and the first is given back; it shrinks by `scontrol`, or by going back to
the job that the root itself runs in, which is kept all the time.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from qloom.errors import InputError, JobError
from qloom.mpi.launch import Launch, clean_environment, end_with_parent, srun

CALL_S = 30.0


@dataclass
class Held:
    """One Slurm job and its nodes."""

    id: str
    nodes: list[str]
    own: bool = False  # the job that the root runs in: shrunk, never cancelled


@dataclass
class SlurmNodes:
    """Jobs of Slurm: one that the ranks run in, one that the root runs in, one that was asked for."""

    ranks_per_node: int = 1
    options: Sequence[str] = ()  # further arguments of salloc, for every allocation
    time_limit: str = "60"
    _used: Held | None = None
    _own: Held | None = None
    _asked: subprocess.Popen[str] | None = None
    _granted: Held | None = None

    @property
    def in_use(self) -> int:
        """How many nodes the ranks have."""
        return len(self._used.nodes) if self._used is not None else 0

    def begin(self, nodes: int) -> None:
        """Use the job that we are in, or ask for an allocation."""
        own = os.environ.get("SLURM_JOB_ID")
        if own is not None:
            self._own = self._used = Held(own, nodes_of(own), own=True)
            if len(self._own.nodes) < nodes:
                raise InputError(f"job {own} has {len(self._own.nodes)} nodes and the program starts on {nodes}")
            self.shrink(nodes)
            return
        self.ask(nodes, nodes)

    def launch(self, ranks_per_node: int) -> Launch:
        """A step over the nodes in use."""
        assert self._used is not None  # noqa: S101  begun
        return srun(len(self._used.nodes) * ranks_per_node, self._used.nodes, self._used.id)

    def ask(self, least: int, most: int) -> None:
        """Ask for one allocation of all the nodes; fewer than `most` are welcome."""
        words = ["salloc", "--no-shell", f"--nodes={least}-{most}"]
        words += [f"--mincpus={self.ranks_per_node}", f"--time={self.time_limit}", *self.options]
        self._asked = subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
            preexec_fn=end_with_parent,  # it then leaves the queue
        )

    def arrived(self) -> int | None:
        """How many nodes the allocation has that was asked for, once it is granted."""
        if self._granted is None and self._asked is not None and self._asked.poll() is not None:
            self._granted = self._take_grant()
        return len(self._granted.nodes) if self._granted is not None else None

    def withdraw(self) -> None:
        """Leave the queue; what was granted in the same moment is given back."""
        if self._asked is not None:
            self._asked.terminate()
            try:
                self._asked.wait(CALL_S)
            except subprocess.TimeoutExpired:
                self._asked.kill()
            number = _job_number(self._asked.communicate()[1])
            self._asked = None
            if number is not None:
                _cancel(number)
        if self._granted is not None:
            _cancel(self._granted.id)
            self._granted = None

    def take(self) -> None:
        """Go over to the allocation that was asked for."""
        assert self._granted is not None  # noqa: S101  it has arrived
        self._leave()
        self._used, self._granted = self._granted, None

    def shrink(self, nodes: int) -> None:
        """Go back to our own job if it is large enough, drop what is too much, and read back what is left."""
        if self._own is not None and self._used is not self._own and len(self._own.nodes) >= nodes:
            self._leave()
            self._used = self._own
        used = self._used
        assert used is not None  # noqa: S101  begun
        if len(used.nodes) > nodes:
            with tempfile.TemporaryDirectory() as directory:  # scontrol leaves a script where it is called
                _call("scontrol", "update", f"JobId={used.id}", f"NumNodes={nodes}", cwd=directory)
            used.nodes = nodes_of(used.id)
            if len(used.nodes) != nodes:
                raise JobError(f"job {used.id} was to keep {nodes} nodes and has {len(used.nodes)}")

    def end(self) -> None:
        """Give everything back but the job that we are in."""
        self.withdraw()
        if self._used is not None:
            self._leave()
            self._used = None

    def _leave(self) -> None:
        if self._used is not None and not self._used.own:
            _cancel(self._used.id)

    def _take_grant(self) -> Held:
        assert self._asked is not None  # noqa: S101  asked for
        said = self._asked.communicate()[1]
        code, self._asked = self._asked.returncode, None
        number = _job_number(said)
        if code != 0 or number is None:
            raise JobError(f"Slurm does not grant nodes: {said.strip()}")
        return Held(number, nodes_of(number))


def nodes_of(job: str) -> list[str]:
    """The nodes of a job, as Slurm has them now."""
    listed = _call("squeue", "--noheader", f"--job={job}", "--format=%N").strip()
    return _call("scontrol", "show", "hostnames", listed).split() if listed else []


def _job_number(said: str) -> str | None:
    """The number of the job that salloc tells of."""
    told = re.findall(r"job allocation (\d+)$", said, re.MULTILINE)
    return told[-1] if told else None


def _cancel(job: str) -> None:
    try:
        _call("scancel", job)
    except JobError as error:
        if "Invalid job id" not in error.message:  # gone by itself
            raise


def _call(*words: str, cwd: str | None = None) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=CALL_S, check=False, cwd=cwd, env=clean_environment()
        )
    except FileNotFoundError:
        raise InputError(f"{words[0]} cannot be found: there is no Slurm on this machine") from None
    except subprocess.TimeoutExpired:
        raise JobError(f"{words[0]} did not answer within {CALL_S:g} s") from None
    if done.returncode != 0:
        raise JobError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
