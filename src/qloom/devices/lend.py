"""A module of this package in another process: how it is started, under limits, and what goes over its pipes.

The package is lent without the other packages that lie beside it: an environment made for a vendor's packages must
not see ours, and needs nothing of qloom installed. The process limits itself before it imports anything: hard limits,
so that nothing it runs can raise them again.

Over the pipes go frames: a line of JSON, and behind it as many bytes as the line says. The bytes are JSON too, of a
payload or an answer. They are passed on as they are: whoever forwards them need not read them.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

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


LONGEST = 256 * 2**20  # bytes of a line, or behind it

Answer = Callable[[dict[str, Any], bytes], bytes]  # the frame to send for a request and what came behind it


def frame(head: dict[str, Any], attached: str | bytes | None = None) -> bytes:
    """As it is sent."""
    if attached is None:
        return json.dumps(head, allow_nan=False).encode() + b"\n"
    data = attached.encode() if isinstance(attached, str) else attached
    return json.dumps({**head, "bytes": len(data)}, allow_nan=False).encode() + b"\n" + data


def attached_bytes(head: Any) -> int | None:
    """How many bytes follow a line; None if none do. Raises `ValueError` for nonsense."""
    if not isinstance(head, dict):
        raise ValueError("a frame's head is a table")
    count = head.pop("bytes", None)
    if count is not None and not (isinstance(count, int) and 0 <= count <= LONGEST):
        raise ValueError("a frame with a wrong length")
    return count


def answer_frames(answer: Answer) -> None:
    """Answer one frame after the other until standard input ends. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    waiting: SimpleQueue[tuple[dict[str, Any], bytes]] = SimpleQueue()

    def read() -> None:
        """Beside the work: when standard input ends, so does this process, at once."""
        try:
            while line := sys.stdin.buffer.readline():
                head = json.loads(line)
                waiting.put((head, sys.stdin.buffer.read(attached_bytes(head) or 0)))
        finally:
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        out.write(answer(*waiting.get()))
        out.flush()
