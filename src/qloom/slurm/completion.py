"""Ends Slurm jobs as `salloc` does when it exits, by themselves: python -I completion.py LIBRARY ID...

No command of Slurm's ends a component of a het job otherwise than by cancelling it, and a salloc that has lost one
component leaves the others. Slurm's library can, by the call that salloc itself makes. It is loaded into a separate
process, since it may end the process that it is in, and used only in versions whose call is known to be this one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import sys
from collections.abc import Sequence

BY_NUMBER = range(36, 43)  # Slurm 20.11 to 24.11: the call takes the number of a job
BY_STEP_ID = (45,)  # Slurm 26.05: it takes a `slurm_step_id_t`; what is between was not seen
NO_VALUE = 0xFFFFFFFE


class StepId(ctypes.Structure):
    """`slurm_step_id_t` of Slurm 26.05, which here stands for a whole job."""

    _fields_ = (
        ("sluid", ctypes.c_uint64),
        ("job_id", ctypes.c_uint32),
        ("step_het_comp", ctypes.c_uint32),
        ("step_id", ctypes.c_uint32),
    )


def complete_jobs(path: str, ids: Sequence[int]) -> int:
    """The exit code: 0 if all jobs have been completed."""
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL, use_errno=True)  # its plug-ins look for its names
    library.slurm_api_version.restype = ctypes.c_long
    library.slurm_strerror.restype = ctypes.c_char_p
    version = library.slurm_api_version() >> 16
    if version not in BY_NUMBER and version not in BY_STEP_ID:
        print(f"completion: error: library of version {version}", file=sys.stderr)
        return 2
    library.slurm_init(None)
    for id in ids:
        by_step_id = ctypes.byref(StepId(0, id, NO_VALUE, NO_VALUE))
        job = ctypes.c_uint32(id) if version in BY_NUMBER else by_step_id
        if library.slurm_complete_job(job, ctypes.c_uint32(0)) != 0:
            said = library.slurm_strerror(ctypes.get_errno()).decode(errors="replace")
            print(f"completion: error: job {id}: {said}", file=sys.stderr)
            return 1
    return 0


def begin_again_with_the_loader_of(program: str) -> None:
    """Begin this process again with the C library of a program, if that is another one than Python's.

    A Slurm that came with its own C library (one unpacked in a prefix, one of Nix or Guix) cannot be loaded beside
    that of the machine if it needs a newer one. Python runs with either.
    """
    loader = _loader_of(program)
    if loader and loader != _loader_of(sys.executable) and not os.path.samefile("/proc/self/exe", loader):
        words = [loader, "--library-path", os.path.dirname(loader), sys.executable, "-I", *sys.argv]
        os.execv(loader, words)  # noqa: S606  Slurm's own


def _loader_of(program: str) -> str:
    """The dynamic loader that a 64-bit program names in its header; empty if it is not one of those."""
    with open(program, "rb") as file:
        if file.read(5) != b"\x7fELF\x02":
            return ""
        file.seek(32)
        (table,) = struct.unpack("Q", file.read(8))
        file.seek(54)
        size, count = struct.unpack("HH", file.read(4))
        for number in range(count):
            file.seek(table + number * size)
            kind, _, offset, _, _, length = struct.unpack("IIQQQQ", file.read(40))
            if kind == 3:  # PT_INTERP
                file.seek(offset)
                return file.read(length).rstrip(b"\0").decode()
    return ""


if __name__ == "__main__":
    begin_again_with_the_loader_of(shutil.which("scontrol") or sys.executable)
    sys.exit(complete_jobs(sys.argv[1], [int(word) for word in sys.argv[2:]]))
