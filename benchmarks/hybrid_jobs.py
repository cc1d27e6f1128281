"""Hybrid jobs simulated per second: whole jobs, through program, strategy, line, broker and journal.

    python benchmarks/hybrid_jobs.py

The peer is simpy, running the least that could be called a hybrid job: the same sleeps and the same queueing,
without programs, journal, replay or accounting. The ratio says what those cost. Times are processor time, the best
of three, so that other work on the machine counts little.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import simpy

import qloom
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.site import Site
from qloom.strategies import STRATEGIES

JOBS, NODES, REPEATS = 200, 30, 3
PARAMETERS = {"classical_s": [7.7, 0.2, 0.2], "score_s": 5.4, "quantum_s": 1.2, "iterations": 4}


def bare_simpy() -> float:
    """Processor seconds for the same jobs under `offload`, in simpy."""
    environment = simpy.Environment()
    nodes = simpy.Container(environment, NODES, NODES)
    qpu = simpy.Resource(environment)

    def sleep(seconds: float) -> Generator[Any, Any, None]:
        yield environment.timeout(seconds)

    def job() -> Generator[Any, Any, None]:
        yield nodes.get(NODES)
        for _ in range(4):
            yield environment.all_of([environment.process(sleep(seconds)) for seconds in (7.7, 0.2, 0.2)])
            with qpu.request() as turn:
                yield turn
                yield environment.timeout(1.2)
            yield environment.timeout(5.4)
        yield nodes.put(NODES)

    began_s = time.process_time()
    for _ in range(JOBS):
        environment.process(job())
    environment.run()
    return time.process_time() - began_s


def whole_jobs(strategy: str) -> tuple[float, int]:
    """Processor seconds for the jobs under a strategy of ours, and how many events they recorded."""
    began_s = time.process_time()
    outcome = qloom.run(
        "phases",
        strategy=strategy,
        world="virtual",
        jobs=JOBS,
        site=Site(nodes=NODES),
        parameters=PARAMETERS,
        in_memory=True,
    )
    return time.process_time() - began_s, len(outcome.events)


def main() -> None:
    """One line per strategy."""
    bare_s = min(bare_simpy() for _ in range(REPEATS))
    print(f"bare simpy: {JOBS / bare_s:,.0f} jobs/s")
    for strategy in STRATEGIES:
        own_s, events = min(whole_jobs(strategy) for _ in range(REPEATS))
        print(
            f"{strategy}: {JOBS / own_s:,.0f} jobs/s, {events / own_s:,.0f} events/s, "
            f"{own_s / bare_s:.1f} times bare simpy",
            flush=True,
        )


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
