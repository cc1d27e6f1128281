"""Hybrid jobs simulated per second: whole jobs, through program, strategy, line, broker and journal.

    python benchmarks/hybrid_jobs.py
    python benchmarks/hybrid_jobs.py --jobs 60 --repeats 6 --calls

The peer is simpy, running the least that could be called a hybrid job: the same sleeps and the same queueing,
without programs, journal, replay or accounting. The ratio says what those cost. Times are processor time, the best
of `--repeats`, so that other work on the machine counts little. `--calls` counts the calls of functions for each job
instead, those of C included, on which other work has no influence.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Generator
from typing import Any

import simpy

import qloom
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.site import Site
from qloom.strategies import STRATEGIES

NODES = 30
PARAMETERS = {"classical_s": [7.7, 0.2, 0.2], "score_s": 5.4, "quantum_s": 1.2, "iterations": 4}


def bare_simpy(jobs: int) -> float:
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
    for _ in range(jobs):
        environment.process(job())
    environment.run()
    return time.process_time() - began_s


def whole_jobs(strategy: str, jobs: int) -> tuple[float, int]:
    """Processor seconds for the jobs under a strategy of ours, and how many events they recorded."""
    began_s = time.process_time()
    outcome = qloom.run(
        "phases",
        strategy=strategy,
        world="virtual",
        jobs=jobs,
        site=Site(nodes=NODES),
        parameters=PARAMETERS,
        in_memory=True,
    )
    return time.process_time() - began_s, len(outcome.events)


def calls_for_each_job(strategy: str, jobs: int) -> float:
    """How many functions are called."""
    whole_jobs(strategy, 5)  # what is imported late is imported by now
    profile = cProfile.Profile()
    profile.runcall(whole_jobs, strategy, jobs)
    return int(pstats.Stats(profile).total_calls) / jobs  # type: ignore[attr-defined]


def main() -> None:
    """One line per strategy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--calls", action="store_true")
    asked = parser.parse_args()
    if asked.calls:
        for strategy in STRATEGIES:
            print(f"{strategy}: {calls_for_each_job(strategy, asked.jobs):,.0f} calls a job", flush=True)
        return
    bare_s = min(bare_simpy(asked.jobs) for _ in range(asked.repeats))
    print(f"bare simpy: {asked.jobs / bare_s:,.0f} jobs/s")
    for strategy in STRATEGIES:
        own_s, events = min(whole_jobs(strategy, asked.jobs) for _ in range(asked.repeats))
        print(
            f"{strategy}: {asked.jobs / own_s:,.0f} jobs/s, {events / own_s:,.0f} events/s, "
            f"{own_s / bare_s:.1f} times bare simpy",
            flush=True,
        )


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
