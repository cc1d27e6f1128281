"""Virtual time against simpy, in the same run: waits per second, and handovers of a contended resource.

python benchmarks/virtual_time.py
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Generator
from typing import Any

import simpy

from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.worlds.virtual.loop import run_virtual

PROCESSES, WAITS, ROUNDS = 100, 1000, 5


def ours_waiting() -> None:
    """Many coroutines that sleep again and again."""

    async def process(clock: Any, number: int) -> None:
        for _ in range(WAITS):
            await clock.sleep(1.0 + number / 1000)

    async def main(clock: Any) -> None:
        await asyncio.gather(*(process(clock, number) for number in range(PROCESSES)))

    run_virtual(main)


def simpy_waiting() -> None:
    """The same with simpy's processes."""
    environment = simpy.Environment()

    def process(number: int) -> Generator[Any, Any, None]:
        for _ in range(WAITS):
            yield environment.timeout(1.0 + number / 1000)

    for number in range(PROCESSES):
        environment.process(process(number))
    environment.run()


def ours_sharing() -> None:
    """Many coroutines that take turns with one lock."""

    async def process(clock: Any, lock: asyncio.Lock) -> None:
        for _ in range(WAITS // 10):
            async with lock:
                await clock.sleep(1.0)

    async def main(clock: Any) -> None:
        lock = asyncio.Lock()
        await asyncio.gather(*(process(clock, lock) for _ in range(PROCESSES)))

    run_virtual(main)


def simpy_sharing() -> None:
    """The same with a simpy resource."""
    environment = simpy.Environment()
    resource = simpy.Resource(environment)

    def process() -> Generator[Any, Any, None]:
        for _ in range(WAITS // 10):
            with resource.request() as request:
                yield request
                yield environment.timeout(1.0)

    for _ in range(PROCESSES):
        environment.process(process())
    environment.run()


def seconds(run: Callable[[], None]) -> float:
    """How long one run takes."""
    began_s = time.perf_counter()
    run()
    return time.perf_counter() - began_s


def main() -> None:
    """Alternate the two, and compare medians."""
    for what, operations, ours, theirs in (
        ("waits", PROCESSES * WAITS, ours_waiting, simpy_waiting),
        ("handovers", PROCESSES * WAITS // 10, ours_sharing, simpy_sharing),
    ):
        times = [(seconds(ours), seconds(theirs)) for _ in range(ROUNDS)]
        own_s, simpy_s = (statistics.median(column) for column in zip(*times, strict=True))
        print(
            f"{what}: qloom {operations / own_s:,.0f}/s, simpy {operations / simpy_s:,.0f}/s, "
            f"ratio {simpy_s / own_s:.2f} (above 1: qloom is faster)"
        )


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
