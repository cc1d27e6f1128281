"""Hybrid jobs simulated per second: whole jobs, through program, strategy, line, broker and journal.

    python benchmarks/hybrid_jobs.py

The peer is simpy, running the least that could be called a hybrid job: the same sleeps and the same queueing,
without programs, journal, replay or accounting. The ratio says what those cost.
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

JOBS, NODES = 200, 30
PARAMETERS = {"classical_s": [7.7, 0.2, 0.2], "score_s": 5.4, "quantum_s": 1.2, "iterations": 4}


def bare_simpy() -> float:
    """Seconds for the same jobs under `offload`, in simpy."""
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

    began_s = time.perf_counter()
    for _ in range(JOBS):
        environment.process(job())
    environment.run()
    return time.perf_counter() - began_s


def main() -> None:
    """One line per strategy."""
    bare_s = bare_simpy()
    print(f"bare simpy: {JOBS / bare_s:,.0f} jobs/s")
    for strategy in STRATEGIES:
        began_s = time.perf_counter()
        outcome = qloom.run(
            "phases",
            strategy=strategy,
            world="virtual",
            jobs=JOBS,
            site=Site(nodes=NODES),
            parameters=PARAMETERS,
            in_memory=True,
        )
        own_s = time.perf_counter() - began_s
        print(
            f"{strategy}: {JOBS / own_s:,.0f} jobs/s, {len(outcome.events) / own_s:,.0f} events/s, "
            f"{own_s / bare_s:.1f} times bare simpy"
        )


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
