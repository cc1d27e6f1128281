"""One MPI world, checked to be the one that was meant; and one over both components of a het job.

Of the latter the last rank is on the node of the QPU, which is held for as long as the job runs. `qloom.mpi.ports`
gives it back early.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qloom.errors import JobError
from qloom.mpi.items import QpuLink, serve_items

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


def run(classical: Callable[[QpuLink, Any], Any], execute: Callable[[Any], Any], comm: Any = None) -> Any:
    """Call `classical(qpu, comm)` on all ranks but the last, which executes their work items until they are done.

    Its `comm` is the world of the classical ranks alone. Returns what `classical` returned; on the last rank, how
    many items it executed.
    """
    world = comm or checked_world()
    last = world.size - 1
    side = world.Split(int(world.rank == last), world.rank)
    try:
        if world.rank == last:
            return serve_items(world, last, execute)
        qpu = QpuLink(world, last)
        try:
            return classical(qpu, side)
        finally:
            qpu.stop()
    finally:
        side.Free()
