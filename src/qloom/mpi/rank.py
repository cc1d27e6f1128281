"""What every rank of a task runs: check the world, call the function, hand over rank 0's result.

Run by `qloom.mpi.launch` under `python -m mpi4py`, which ends all ranks as soon as one raises.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from pathlib import Path

from qloom.journal.results import write_atomically
from qloom.mpi.launch import CALL, RESULT, SAID
from qloom.mpi.oneworld import checked_world
from qloom.private import read_private
from qloom.worker import dump, run_call, set_up


def main(directory: Path) -> None:
    """Run the call that lies in a directory. Only rank 0 needs to see it."""
    from mpi4py import MPI

    try:
        world = checked_world()
        message = world.bcast(read_private(directory / CALL) if world.rank == 0 else None)
        result = run(message)
        if world.rank == 0:
            write_atomically(directory / RESULT, result)
    except Exception as error:
        print(f"{SAID}rank {MPI.COMM_WORLD.rank} raised {type(error).__name__}: {error}", file=sys.stderr)
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)


def run(message: bytes) -> bytes:
    """Seconds and result of a call, pickled, from a process that sees modules where the driver sees them."""
    options, function, arguments = pickle.loads(message)  # noqa: S301  from the user's own driver
    set_up(options)
    args, kwargs = pickle.loads(arguments)  # noqa: S301
    return dump(run_call(function, args, kwargs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
