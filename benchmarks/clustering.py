"""How fast the clustering program is: each step beside scikit-learn in the same run, then the whole loop.

    python -m benchmarks.clustering            the paper's 80,000 points; some minutes, mostly scikit-learn's
    python -m benchmarks.clustering --million  also a million points
    python -m benchmarks.clustering --quick    8,000 points, to see that it works
    python -m benchmarks.clustering --loop-only  only the loops, and the program from the command line

The loop runs as users run it: a driver and worker processes in the local world. Memory is the peak over the driver
and its workers together: proportional (pages that processes share count once) and resident (they count each time).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from qloom.clustering import tasks
from qloom.clustering.answer import gap, optimum, repair
from qloom.clustering.compiled import vectorised
from qloom.clustering.data import Points, blobs
from qloom.clustering.overlap import cells_of
from qloom.clustering.parameters import Ranges, draw, eps_range
from qloom.clustering.qubo import PENALTIES, graph, model
from qloom.clustering.silhouette import silhouette_samples

PUBLISHED = {"weights": "size", "penalty": "published", "eps_min": 1.2, "eps_max": 4.5}
EPS = 0.3  # scikit-learn's DBSCAN keeps all neighbours at once: at the published eps they do not fit


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The best time of some calls, and the result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        began = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - began)
    return best, result


class Memory:
    """The peak memory of this process's children, sampled while they run."""

    def __init__(self) -> None:
        self.proportional_mb = self.resident_mb = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            totals = [_memory_kb(pid) for pid in _descendants(os.getpid())]
            self.proportional_mb = max(self.proportional_mb, sum(pss for pss, _ in totals) / 1024)
            self.resident_mb = max(self.resident_mb, sum(rss for _, rss in totals) / 1024)


def _descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue  # it ended meanwhile
            parents.setdefault(parent, []).append(int(entry.name))
    found = list(parents.get(root, []))
    for pid in found:
        found.extend(parents.get(pid, []))
    return found


def _memory_kb(pid: int) -> tuple[int, int]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("Pss:", "Rss:"))}
    return fields.get("Pss", 0), fields.get("Rss", 0)


@vectorised
def _roots(values: NDArray[Any], rounds: int, out: NDArray[Any]) -> None:
    for round in range(rounds):
        total = values.dtype.type(0)
        for i in range(len(values)):
            total += np.sqrt(values[i])
        out[round % len(out)] = total
        values[round % len(values)] += total  # so that no round can be left out


def roots_per_s(dtype: type) -> float:
    """Square roots one core takes per second from its nearest cache: what bounds a silhouette."""
    values: NDArray[Any] = np.arange(1024).astype(dtype)
    out = np.empty_like(values)
    _roots(values, 1, out)
    seconds, _ = timed(lambda: _roots(values, 100_000, out), 9)
    return 1024 * 100_000 / seconds


def bytes_per_s() -> float:
    """What one core copies per second: bounds every step that must at least look at the data."""
    block = np.ones(32_000_000)
    target = np.empty_like(block)
    seconds, _ = timed(lambda: np.copyto(target, block), 3)
    return 2 * block.nbytes / seconds


Row = tuple[str, float, float | None, float]


def steps(points: Points, truth: NDArray[np.int64], threads: int) -> list[Row]:
    """Name, our seconds, scikit-learn's seconds, and the seconds that arithmetic or memory allow."""
    import sklearn.cluster
    import sklearn.metrics
    from scipy.cluster.hierarchy import linkage

    count = len(points)
    pass_s = points.nbytes / bytes_per_s()
    cluster, small = tasks.clustering.function, points[: min(20_000, count)].copy()
    eps = EPS * (80_000 / count) ** 0.5
    rows: list[Row] = []

    ours, by_kmeans = timed(lambda: cluster(points, {"method": "kmeans", "k": 8, "seed": 1}), 3)
    theirs, _ = timed(lambda: sklearn.cluster.KMeans(8, n_init=3, random_state=0).fit(points), 3)
    rows.append(("k-means, k = 8, 3 starts", ours, theirs, pass_s))
    ours, by_density = timed(lambda: cluster(points, {"method": "dbscan", "eps": eps, "min_pts": 10}), 3)
    theirs, _ = timed(lambda: sklearn.cluster.DBSCAN(eps=eps, min_samples=10).fit(points))
    rows.append((f"DBSCAN, eps = {eps:.2g}", ours, theirs, pass_s))
    ours, _ = timed(lambda: cluster(small, {"method": "single", "k": 4}), 3)
    theirs, _ = timed(lambda: linkage(small, "single"))
    rows.append(
        (f"single linkage, {len(small)} points (scipy, full matrix)", ours, theirs, pass_s * len(small) / count)
    )
    theirs, _ = timed(lambda: sklearn.cluster.AgglomerativeClustering(4, linkage="single").fit(small))
    rows.append((f"single linkage, {len(small)} points (scikit-learn)", ours, theirs, pass_s * len(small) / count))
    ours, joins = timed(lambda: tasks.hierarchy.function(points, "single"), 3)
    rows.append(("single linkage, the tree", ours, None, pass_s))
    ours, by_tree = timed(lambda: cluster(points, {"method": "single", "k": 4}, joins), 3)
    rows.append(("single linkage, a cut of it", ours, None, joins.nbytes / bytes_per_s()))

    theirs, expected = timed(lambda: sklearn.metrics.silhouette_score(points, truth))
    for precision, dtype in (("single", np.float32), ("double", np.float64)):
        ours, values = timed(lambda p=precision: silhouette_samples(points, [truth], precision=p, threads=threads), 5)  # type: ignore[misc]
        rows.append(
            (f"silhouette, {precision}, {threads} threads", ours, theirs, count**2 / roots_per_s(dtype) / threads)
        )
        print(f"silhouette in {precision} precision: {values.mean():.9f}, scikit-learn: {expected:.9f}")
    labelings = [by_kmeans, by_density, by_tree]
    ours, sums = timed(lambda: tasks.cluster_silhouettes.function(points, None, "single", threads, *labelings), 3)
    rows.append(
        ("silhouettes of three clusterings at once", ours, None, count**2 / roots_per_s(np.float32) / threads)
    )
    ours, overlaps = timed(lambda: graph(cells_of(labelings), ["kmeans", "dbscan", "single"], sums), 3)
    rows.append((f"overlap graph, {len(overlaps.clusters)} clusters", ours, None, 3 * count / bytes_per_s()))
    ours, _ = timed(lambda: optimum(overlaps), 3)
    rows.append(("exact optimum of the QUBO", ours, None, 0.0))
    return rows


def show(rows: list[Row]) -> None:
    """Print the table of steps."""
    table = Table("step", "qloom [s]", "other [s]", "faster", "bound [s]", "from bound")
    for name, ours, theirs, floor in rows:
        other = ("", "") if theirs is None else (f"{theirs:.3g}", f"{theirs / ours:,.0f}x")
        bound = (f"{floor:.2g}", f"{ours / floor:,.1f}x") if floor else ("", "")
        table.add_row(name, f"{ours:.3g}", *other, *bound)
    console = Console(width=130)
    console.print(table)
    console.print("bound: silhouettes by the rate of square roots, other steps by one pass over the data in memory")


def penalties(points: Points, threads: int) -> None:
    """What simulated annealing (100 shots, five seeds) misses of the optimum with each penalty."""
    import dwave.samplers

    sampler: Any = dwave.samplers.SimulatedAnnealingSampler
    ranges, names = Ranges(), ["kmeans", "dbscan", "single"]
    span = eps_range(points, ranges.min_pts)
    for seed, iteration in ((1, 0), (1, 1), (2, 0)):
        labelings = [tasks.clustering.function(points, drawn) for drawn in draw(ranges, span, seed, iteration)]
        sums = tasks.cluster_silhouettes.function(points, None, "single", threads, *labelings)
        for penalty in PENALTIES:
            overlaps = graph(cells_of(labelings), names, sums, penalty)
            best, bqm = optimum(overlaps), model(overlaps)
            answers = [sampler().sample(bqm, num_reads=100, seed=s).first.sample for s in range(5)]
            missed = [gap(overlaps, list(repair(overlaps, answer).chosen), best) for answer in answers]
            print(
                f"{len(overlaps.clusters)} clusters, {penalty} penalty: misses {min(missed):.1%} to {max(missed):.1%}"
            )


def compile_s() -> float:
    """Seconds to compile every function, in a process with an empty cache, less those with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        again = [sys.executable, "-m", "benchmarks.clustering", "--warm"]
        env = {**os.environ, "NUMBA_CACHE_DIR": cache}
        first, second = (timed(lambda: subprocess.run(again, env=env, check=True))[0] for _ in range(2))
    return first - second


def warm() -> None:
    """Call everything that is compiled, as workers will: shared arrays arrive read-only."""
    points = blobs(2000).points
    points.flags.writeable = False
    joins = tasks.hierarchy.function(points, "single")
    for parameters in ({"method": "kmeans", "k": 4, "seed": 0}, {"method": "dbscan", "eps": 1.0, "min_pts": 10}):
        tasks.clustering.function(points, parameters)
    labels = tasks.clustering.function(points, {"method": "single", "k": 4}, joins)
    for precision in ("single", "double"):
        tasks.cluster_silhouettes.function(points, None, precision, 1, labels)


# What a user's driver does; it is not this module, whose imports would count as its memory.
DRIVER = """
import os, sys, tempfile, time
import qloom
from qloom.clustering import program

with tempfile.TemporaryDirectory() as home:
    os.environ["QLOOM_HOME"] = home
    began = time.perf_counter()
    outcome = qloom.run(program, parameters=eval(sys.argv[1]), seed=1, site=qloom.Site(nodes=int(sys.argv[2])))
    seconds = time.perf_counter() - began
    result = outcome.result
scores = [record["score"] for record in result["iterations"]]
print(f"{seconds:.1f} s, score {result['score']}, {result['scoring']}, scores of iterations {scores}")
"""


def loop(nodes: int, **parameters: Any) -> None:
    """One run in the local world, from outside: seconds with and without the start of processes, and memory."""
    before_s = _children_cpu_s()
    with Memory() as memory:
        began = time.perf_counter()
        words = [sys.executable, "-c", DRIVER, repr(parameters), str(nodes)]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        seconds = time.perf_counter() - began
    cpu_s = _children_cpu_s() - before_s
    print(f"{', '.join(f'{name}={value!r}' for name, value in parameters.items())}\n  {done.stdout.strip()}")
    print(f"  {seconds:.1f} s with the start and end of all processes, {cpu_s:.1f} s of CPU time")
    print(f"  peak memory: {memory.proportional_mb:.0f} MB proportional, {memory.resident_mb:.0f} MB resident")


def whole_program(count: int, runs: int = 3) -> None:
    """`qloom run clustering` as a user types it, plot included: the shortest of some runs."""
    words = [sys.executable, "-m", "qloom", "run", "clustering", "--quiet", "--set", f"blobs={count}"]
    before_s = _children_cpu_s()
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "QLOOM_HOME": home}
        seconds, _ = timed(lambda: subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL), runs)
    cpu_s = (_children_cpu_s() - before_s) / runs
    print(f"qloom run clustering --set blobs={count}: {seconds:.1f} s, {cpu_s:.1f} s of CPU time")


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Parse the command line and run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--loop-only", action="store_true", help="leave the table of steps out")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.warm:
        return warm()
    count = 8_000 if given.quick else 80_000
    print(f"{count} points, {given.threads} threads, load {os.getloadavg()[0]:.1f}")
    print(f"compile time, once per machine: {compile_s():.1f} s")
    warm()
    if not given.loop_only:
        data = blobs(count)
        assert data.truth is not None
        show(steps(data.points, data.truth, given.threads))
        penalties(data.points, given.threads)
    nodes = given.threads
    shared = {"iterations": 4, "threshold": 1.0, "threads": given.threads, "plot": ""}
    loop(nodes, blobs=count, **shared, **PUBLISHED)
    loop(nodes, blobs=count, **shared)
    whole_program(count // 4)
    if given.million:
        loop(nodes, blobs=1_000_000, score=False, **shared, **PUBLISHED)
        loop(nodes, blobs=1_000_000, **shared)


if __name__ == "__main__":
    main()
