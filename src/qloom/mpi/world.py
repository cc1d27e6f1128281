"""`COMM_WORLD`, after a look at whether it is what was meant."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

from qloom.errors import JobError

MEANT = ("QLOOM_RANKS", "SLURM_STEP_NUM_TASKS")  # the first that is set counts
_SHARED_MEMORY = re.compile(r"/dev/shm/mpich_shm_\S+")  # noqa: S108  MPICH's own name for it


@functools.cache
def checked_world() -> Any:
    """All ranks that were started, as one world. Collective."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    comm.Barrier()
    _unname_shared_memory()
    comm.Barrier()
    _check_size(comm)
    return comm


def _check_size(comm: Any) -> None:
    """Raise `JobError` unless MPI sees the ranks that were started.

    A launcher that MPI does not understand makes k worlds of one rank, all of which end well.
    """
    meant = next((os.environ[name] for name in MEANT if os.environ.get(name)), None)
    if meant is not None and comm.size != int(meant):
        raise JobError(
            f"{meant} ranks were started and MPI sees {comm.size}",
            hint="the launcher and the MPI library do not speak the same language: srun needs --mpi=pmi2 for MPICH",
        )


def _unname_shared_memory() -> None:
    """Ranks that are killed leave MPICH's shared memory behind; once all have it, it needs no name any more."""
    for name in dict.fromkeys(_SHARED_MEMORY.findall(Path("/proc/self/maps").read_text())):
        Path(name).unlink(missing_ok=True)
