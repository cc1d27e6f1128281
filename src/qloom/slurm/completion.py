"""Ends Slurm jobs as `salloc` does when it exits, by themselves: python -I completion.py LIBRARY ID...

No command of Slurm's ends a component of a het job otherwise than by cancelling it, and a salloc that has lost one
component leaves the others. Slurm's library can, by the call that salloc itself makes. It is loaded into a separate
process, since it may end the process that it is in, and used only in versions whose call is known to be this one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

OLDEST, NEWEST = 36, 42  # Slurm 20.11 to 24.11; later ones take the number of a job in another form


def complete_jobs(path: str, ids: Sequence[int]) -> int:
    """The exit code: 0 if all jobs have been completed."""
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL, use_errno=True)  # its plug-ins look for its names
    library.slurm_api_version.restype = ctypes.c_long
    library.slurm_strerror.restype = ctypes.c_char_p
    version = library.slurm_api_version() >> 16
    if not OLDEST <= version <= NEWEST:
        print(f"completion: error: library of version {version}", file=sys.stderr)
        return 2
    library.slurm_init(None)
    for id in ids:
        if library.slurm_complete_job(ctypes.c_uint32(id), ctypes.c_uint32(0)) != 0:
            said = library.slurm_strerror(ctypes.get_errno()).decode(errors="replace")
            print(f"completion: error: job {id}: {said}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(complete_jobs(sys.argv[1], [int(word) for word in sys.argv[2:]]))
