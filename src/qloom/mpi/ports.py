"""The two components of a het job as two MPI worlds that meet over a port, so that the QPU can be given back early.

The classical side opens the port and waits (`accept`); the quantum side comes to it (`serve`). The port's name is
handed over in a file that both see, since looking names up does not work between two steps of Slurm. When the
classical side is done it disconnects, and `release_qpu` cancels the quantum component while its own job goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qloom.errors import JobError
from qloom.journal.results import write_atomically
from qloom.mpi.items import QpuLink, serve_items, wait_for, watchdog
from qloom.mpi.oneworld import checked_world
from qloom.slurm.commands import call_once

CALL_S = 30.0  # for a call of MPI or Slurm that should take milliseconds


def job_id() -> str | None:
    """The Slurm job that this process belongs to; for a het job its first component, whichever one this is."""
    return os.environ.get("SLURM_HET_JOB_ID") or os.environ.get("SLURM_JOB_ID")


def port_file(directory: Path) -> Path:
    """Where the port's name is handed over; another file after a requeue, so never a stale one."""
    return directory / f"qpu-port-{job_id() or 'local'}-{os.environ.get('SLURM_RESTART_COUNT', '0')}"


@contextmanager
def accept(directory: Path, within_s: float = 60.0, comm: Any = None) -> Iterator[QpuLink]:
    """The classical side, collective over `comm`: wait for the quantum component, for at most `within_s`.

    On leaving, the quantum side stops and the two worlds are separate again.
    """
    from mpi4py import MPI

    comm = comm or checked_world()
    file = port_file(directory)
    port, problem = None, None
    if comm.rank == 0:
        port = MPI.Open_port()
        write_atomically(file, port.encode())
        try:  # Accept itself cannot be called off, so nobody calls it before the other side is there
            wait_for(lambda: _text(_arrival(file)), within_s, "the quantum component")
        except JobError as error:
            problem = error
    try:
        problem = comm.bcast(problem)
        if problem is not None:
            raise problem
        with watchdog(CALL_S, "accepting the quantum component"):
            joined = comm.Accept(port or "")
        link = QpuLink(joined, 0)
        try:
            yield link
        finally:
            link.stop()
            with watchdog(CALL_S, "disconnecting from the quantum component"):
                joined.Disconnect()
    finally:
        if port is not None:
            MPI.Close_port(port)
            for leftover in (file, _arrival(file)):
                leftover.unlink(missing_ok=True)


def serve(
    execute: Callable[[Any], Any],
    directory: Path,
    within_s: float = 60.0,
    patience_s: float | None = None,
    comm: Any = None,
) -> int:
    """The quantum side: find the port, connect, execute work items until the classical side stops; returns how many.

    Its ranks all connect and the first one executes. `patience_s` bounds how long it waits for the next item.
    """
    comm = comm or checked_world()
    file = port_file(directory)
    port = ""
    if comm.rank == 0:
        port = wait_for(lambda: _text(file), within_s, f"the port of the classical component ({file.name})")
        write_atomically(_arrival(file), b"here")
    with watchdog(CALL_S, "connecting to the classical component"):
        joined = comm.Connect(port)
    served = serve_items(joined, joined.remote_size, execute, patience_s) if comm.rank == 0 else 0
    with watchdog(CALL_S, "disconnecting from the classical component"):
        joined.Disconnect()
    return served


def release_qpu(component: int = 1) -> bool:
    """Cancel the quantum component of our het job; our own goes on. Call it on one rank. False outside a het job."""
    if "SLURM_HET_SIZE" not in os.environ and "SLURM_HET_JOB_ID" not in os.environ:
        return False
    words = ["scancel", f"{job_id()}+{component}"]
    answer = call_once(*words, timeout_s=CALL_S)
    if answer.code != 0:
        raise JobError(f"the QPU could not be released: {answer.complaint}", hint=" ".join(words))
    return True


def _arrival(file: Path) -> Path:
    return file.with_name(f"{file.name}-here")


def _text(file: Path) -> str | None:
    try:
        return file.read_text() or None
    except FileNotFoundError:
        return None
