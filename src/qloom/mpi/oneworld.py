"""One MPI world over both components of a het job; its last rank is on the node of the QPU.

The QPU is held for as long as the job runs. `qloom.mpi.ports` gives it back early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qloom.mpi.items import QpuLink, serve_items
from qloom.mpi.world import checked_world


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
