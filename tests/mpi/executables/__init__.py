"""MPI programs in C, compiled with the compiler of the MPI that qloom uses."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MPICC = shutil.which("mpicc", path=str(Path(sys.executable).parent))
CC = shutil.which("cc")


@functools.cache
def compiled(name: str, *options: str) -> Path:
    """The executable of a source file beside this one."""
    if MPICC is None or CC is None:
        pytest.skip("EXECUTABLES OF MPI ARE NOT TESTED: no mpicc or no C compiler here")
    source = Path(__file__).with_name(f"{name}.c")
    target = Path(tempfile.mkdtemp(prefix="qloom-mpi-")) / name
    words = [MPICC, "-rdynamic", *options, str(source), "-o", str(target), "-ldl"]
    subprocess.run(words, check=True, timeout=120, capture_output=True)
    return target
