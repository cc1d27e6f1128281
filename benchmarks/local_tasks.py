"""Overhead per task of the local world against `concurrent.futures.ProcessPoolExecutor`, in the same run.

    python benchmarks/local_tasks.py

Both run empty tasks on two warm processes. qloom also writes each task's start, end and result to its journal,
so the pool does less; the ratio of the two is what is printed. Then tasks of qloom alone whose results go to files
(20 kB each): in one phase, and in phases of five with a quantum call after each, which waits until all are synced.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import qloom
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.site import Site

TASKS = 2000
FILES = 100
ROUNDS = 5


def nothing(number: int) -> int:
    """An empty task."""
    return number


def large(number: int) -> bytes:
    """A result that goes to a file."""
    return b"%20000d" % number


async def program(job: Any) -> list[float]:
    """Seconds per task: one phase of many, phases of one task, results in files, and these with quantum calls."""
    await job.classical(*(qloom.call(nothing, -number) for number in range(1, 9)))  # workers are warm from here on
    began_s = time.perf_counter()
    await job.classical(*(qloom.call(nothing, number) for number in range(TASKS)))
    many_s = (time.perf_counter() - began_s) / TASKS
    began_s = time.perf_counter()
    for number in range(TASKS // 10):
        await job.classical(qloom.call(nothing, TASKS + number))
    one_s = (time.perf_counter() - began_s) / (TASKS // 10)
    began_s = time.perf_counter()
    await job.classical(*(qloom.call(large, number) for number in range(FILES)))
    files_s = (time.perf_counter() - began_s) / FILES
    began_s = time.perf_counter()
    for first in range(FILES, 2 * FILES, 5):
        await job.classical(*(qloom.call(large, number) for number in range(first, first + 5)))
        await job.quantum(qloom.delay(0.0, (first,)))
    return [many_s, one_s, files_s, (time.perf_counter() - began_s) / FILES]


def pool() -> list[float]:
    """The same with the standard library."""
    with ProcessPoolExecutor(2) as executor:
        list(executor.map(nothing, range(8)))
        began_s = time.perf_counter()
        for future in [executor.submit(nothing, number) for number in range(TASKS)]:
            future.result()
        many_s = (time.perf_counter() - began_s) / TASKS
        began_s = time.perf_counter()
        for number in range(TASKS // 10):
            executor.submit(nothing, number).result()
        return [many_s, (time.perf_counter() - began_s) / (TASKS // 10)]


def main() -> None:
    """Alternate the two, and compare medians."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["QLOOM_HOME"] = home
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(qloom.run(program, site=Site(nodes=2)).result)
            theirs.append(pool())
    for place, what in enumerate(("tasks in one phase", "one task at a time")):
        own_s = statistics.median(times[place] for times in ours)
        pool_s = statistics.median(times[place] for times in theirs)
        print(
            f"{what}: qloom {own_s * 1e6:.0f} us a task, ProcessPoolExecutor {pool_s * 1e6:.0f} us, "
            f"ratio {own_s / pool_s:.2f}"
        )
    for place, what in enumerate(("results in files", "results in files, a quantum call after five"), 2):
        print(f"{what}: qloom {1 / statistics.median(times[place] for times in ours):.0f} tasks/s")


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
