"""A loaded cluster, simulated: rigid jobs per second under EASY, a year with hybrid jobs, and growth with the jobs.

    python benchmarks/simulator.py            # all three, and the plot docs/results/load-growth.png
    python benchmarks/simulator.py rigid      # only the first; also: year, growth

The cluster has 3,456 nodes and a load of 0.95; jobs are those of the Lublin-Feitelson model. The peer is simpy with
first-come-first-served and no backfilling at all: the least that could be called a simulation of the same jobs.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Generator
from pathlib import Path
from random import Random
from typing import Any

import simpy

from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.lab.load.run import Load, prepare, run_load, simulate
from qloom.lab.load.source import lublin
from qloom.lab.load.workload import LoadJob
from qloom.site import Qpu, Site

NODES, LOAD = 3456, 0.95
YEAR_S = 365 * 24 * 3600
SIZES = (12_500, 25_000, 50_000, 75_000, 100_000)
PLOT = Path(__file__).parent.parent / "docs" / "results" / "load-growth.png"


def rigid_load(jobs: int) -> Load:
    """So many rigid jobs."""
    return Load(lublin(jobs, NODES, Random(0)), Site(nodes=NODES), load=LOAD, arrivals="poisson")


def timed(work: Callable[[], Any]) -> float:
    """CPU seconds: the machine may do other work, too."""
    gc.collect()
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def bare_simpy(jobs: list[LoadJob]) -> None:
    """The same arrivals, sizes and run times through one FIFO of nodes."""
    environment = simpy.Environment()
    nodes = simpy.Container(environment, NODES, NODES)

    def job(one: LoadJob) -> Generator[Any, Any, None]:
        yield nodes.get(one.nodes)
        yield environment.timeout(one.run_s)
        yield nodes.put(one.nodes)

    def arrivals() -> Generator[Any, Any, None]:
        for one in jobs:
            yield environment.timeout(max(0.0, one.submit_s - environment.now))
            environment.process(job(one))

    environment.process(arrivals())
    environment.run()


def rigid() -> None:
    """100,000 rigid jobs; the best of three, since a shared machine only ever makes it slower."""
    load = rigid_load(100_000)
    jobs, follows = prepare(load)
    own_s = min(timed(lambda: simulate(load, jobs, follows)) for _ in range(3))
    peer_s = min(timed(lambda: bare_simpy(jobs)) for _ in range(2))
    print(f"rigid: {len(jobs) / own_s:,.0f} jobs/s, simpy without backfilling {len(jobs) / peer_s:,.0f} jobs/s")


def year() -> None:
    """A year with a million jobs, one in a hundred of them hybrid, of any size, under vqpu."""
    count = 1_000_000
    jobs = lublin(count, NODES, Random(0))
    shrunk = LOAD * NODES * YEAR_S / sum(job.nodes * job.run_s for job in jobs)
    jobs = [LoadJob(job.number, job.submit_s, job.run_s * shrunk, job.nodes, job.limit_s * shrunk) for job in jobs]
    site = Site(nodes=NODES, qpus=tuple(Qpu(name=f"qpu{number}") for number in range(4)))
    load = Load(jobs, site, load=LOAD, arrivals="poisson", hybrid=0.01, strategy="vqpu")
    began_s, cpu_s = time.perf_counter(), time.process_time()
    result = run_load(load)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    days = result.records[-1].submit_s / 86400
    print(
        f"year: {count:,} jobs over {days:.0f} days, {sum(record.kind == 'hybrid' for record in result.records):,} "
        f"hybrid, {wall_s:.0f} s ({cpu_s:.0f} s of CPU)"
    )


def growth() -> None:
    """Time and memory for more and more jobs."""
    rows = []
    for count in SIZES:
        load = rigid_load(count)
        jobs, follows = prepare(load)
        seconds = min(timed(lambda: simulate(load, jobs, follows)) for _ in range(2))  # noqa: B023
        tracemalloc.start()
        kept = simulate(load, jobs, follows)
        peak_mb = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        del kept
        rows.append((count, seconds, peak_mb))
        print(f"growth: {count:>9,} jobs  {seconds:6.2f} s  {peak_mb:7.1f} MB  {seconds / count * 1e6:5.1f} us a job")
    draw(rows)


def draw(rows: list[tuple[int, float, float]]) -> None:
    """Both should be straight lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    counts = [row[0] / 1000 for row in rows]
    for panel, place, label in zip(figure.subplots(1, 2), (1, 2), ("CPU seconds", "MB at most"), strict=True):
        panel.plot(counts, [row[place] for row in rows], marker="o")
        panel.set(xlabel="thousands of jobs", ylabel=label, ylim=0, xlim=0)
        panel.grid(alpha=0.3)
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, dpi=110)
    print(f"growth: {PLOT}")


def main() -> None:
    """What was named, or all."""
    parts = {"rigid": rigid, "year": year, "growth": growth}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
