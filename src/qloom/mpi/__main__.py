"""`python -m qloom.mpi program.py ...`: checks the world first; an exception on one rank ends them all."""

from __future__ import annotations

import sys

from mpi4py.run import main, set_abort_status

from qloom.errors import JobError
from qloom.mpi.oneworld import checked_world
from qloom.mpi.supervisor import require_supervisor

if __name__ == "__main__":
    require_supervisor()
    try:
        checked_world()
    except JobError as error:
        print(f"qloom: {error}", file=sys.stderr)
        set_abort_status(2)
        raise SystemExit(2) from None
    main()
