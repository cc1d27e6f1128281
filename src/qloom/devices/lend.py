"""How a module of this package is run by another interpreter, or this one, in a process of its own, under limits.

The package is lent without the other packages that lie beside it: an environment made for a vendor's packages must
not see ours, and needs nothing of qloom installed. The process limits itself before it imports anything: hard limits,
so that nothing it runs can raise them again.
"""

from __future__ import annotations

import resource
from pathlib import Path

import qloom.errors

LEND = """
import resource, runpy, sys, types
memory, package, module = int(sys.argv[1]), sys.argv[2], sys.argv[3]
del sys.argv[1:]
for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
    hard = resource.getrlimit(kind)[1]
    if most >= 0 and (hard < 0 or hard > most):
        resource.setrlimit(kind, (most, most))
lent = sys.modules["qloom"] = types.ModuleType("qloom")
lent.__path__ = [package]
runpy.run_module(module, run_name="__main__")
"""
# One thread for each process: lanes and checks already use the cores, and every thread reserves memory of its own.
FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}  # each thread would reserve 64 MiB of address space
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    **FEW_ARENAS,
}


def command(python: str, module: str, memory_mib: int | None = None) -> tuple[str, ...]:
    """The words that run `module` with so much address space at most (RLIMIT_AS; None: as much as there is).

    The folder that the broker was started in is not searched for modules (-P).
    """
    most = -1 if memory_mib is None else memory_mib * 2**20
    return (python, "-P", "-c", LEND, str(most), str(Path(qloom.errors.__file__).parent), module)


def allow_cpu(seconds: float) -> None:
    """Let this process use so much more CPU time; then the kernel ends it (SIGXCPU)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until if hard < 0 else min(until, hard), hard))
