"""Clustering aggregation as a qloom program.

Each iteration clusters the points in several ways, lets a QPU choose clusters that do not overlap, and scores the
partition that follows. The loop ends when the score passes a threshold; otherwise the best one so far counts.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from qloom.clustering import tasks
from qloom.clustering.answer import repair
from qloom.clustering.clusterings import prepare
from qloom.clustering.data import Data, load
from qloom.clustering.data import blobs as make_blobs
from qloom.clustering.optimum import gap as gap_to
from qloom.clustering.optimum import optimum
from qloom.clustering.output import write_all
from qloom.clustering.overlap import Labels, cells_of
from qloom.clustering.parameters import Ranges
from qloom.clustering.qubo import PENALTIES, WEIGHTS, graph, model, partial_labels
from qloom.clustering.report import Outcome, chosen_clusters, repair_report, result_of
from qloom.clustering.scoring import Scoring
from qloom.errors import InputError
from qloom.model import call

if TYPE_CHECKING:
    from qloom.program import Job

GAP_LIMIT = 100  # variables: an exact optimum of so many takes a fraction of a second


async def program(
    job: Job,
    *,
    data: str | None = None,
    blobs: int | None = None,
    label: str | int | None = None,
    threshold: float = 0.8,
    iterations: int = 10,
    methods: str | list[str] = "kmeans,dbscan,single",
    k_min: int = 4,
    k_max: int = 10,
    linkage_k: int = 4,
    eps_min: float | None = None,
    eps_max: float | None = None,
    min_pts: int = 10,
    weights: str = "silhouette",
    penalty: str | None = None,
    shots: int = 100,
    quantum_s: float | None = None,
    score: bool = True,
    exact_limit: int = 200_000,
    sample: int = 20_000,
    precision: str = "single",
    threads: int = 1,
    gap: bool = True,
    speculate: bool = True,
    plot: str | None = "png",
) -> dict[str, Any]:
    """Cluster points by aggregation.

    `data` is a CSV or npy file, or `blobs` a number of the paper's points; `label` names a column of known labels.
    `penalty` is the published one with weights by size, and `tight` with weights by silhouette, unless it is given.
    `score=False` runs all iterations without silhouettes and keeps the choice with the largest total weight.
    `speculate=False` does not offer the next iteration's clusterings as spare work.
    `gap` reports what each answer misses of the exact optimum, for QUBOs of up to 100 variables.
    `plot` is png, svg or nothing.
    """
    _require_extra()
    whole = {"iterations": iterations, "k_min": k_min, "k_max": k_max, "linkage_k": linkage_k, "min_pts": min_pts}
    whole |= {"shots": shots, "exact_limit": exact_limit, "sample": sample, "threads": threads}
    _require_numbers(whole, {"threshold": threshold, "quantum_s": quantum_s, "eps_min": eps_min, "eps_max": eps_max})
    if not all(isinstance(value, bool) for value in (score, gap, speculate)):
        raise InputError("score, gap and speculate are true or false")
    source = _source(data, blobs, label)
    _check(iterations, shots, weights, penalty, plot, eps_min, eps_max)
    listed = methods if isinstance(methods, list) else str(methods).split(",")
    names = [str(name).strip() for name in listed if str(name).strip()]
    eps = None if eps_min is None or eps_max is None else (float(eps_min), float(eps_max))
    count, dimensions = source.points.shape
    ranges = Ranges(tuple(names), (k_min, k_max), linkage_k, min_pts, eps).check(count)
    scoring = Scoring(count, dimensions, exact_limit, sample, precision, threads, job.seed)

    points = job.share(source.points)
    sampled = scoring.rows()
    rows = None if sampled is None else job.share(sampled)
    clusterings = await prepare(job, points, count, ranges)
    known: dict[str, Labels] = {}
    tried: list[dict[str, Any]] = []
    best: Outcome | None = None
    for iteration in range(iterations):
        drawn = clusterings.draw(iteration)
        new = {key: clusterings.task(drawn[key]) for key in drawn if key not in known}
        known.update(zip(new, await job.classical(*new.values()) if new else [], strict=True))
        labelings = [known[key] for key in drawn]

        silhouettes = None
        if weights == "silhouette":
            shared = [job.share(labels) for labels in labelings]
            weigh = call(tasks.cluster_silhouettes, points, rows, precision, threads, *shared)
            silhouettes = (await job.classical(scoring.needs(weigh)))[0]
        cells = cells_of(labelings)
        overlaps = graph(cells, names, silhouettes, penalty)
        record: dict[str, Any] = {
            "iteration": iteration,
            "clusterings": list(drawn.values()),
            "variables": len(overlaps.clusters),
            "score": None,
        }
        tried.append(record)
        if not overlaps.clusters:  # no clustering separated anything
            continue
        asked = job.quantum(model(overlaps), shots=shots, expected_s=quantum_s)
        if (
            speculate and iteration + 1 < iterations
        ):  # the next clusterings do not wait for the answer: spare work meanwhile
            later = clusterings.draw(iteration + 1)
            job.speculate(*(clusterings.task(later[key]) for key in later if key not in known))
        choice = repair(overlaps, (await asked).values)
        record["repair"] = repair_report(overlaps, choice)
        if gap and len(overlaps.clusters) <= GAP_LIMIT:
            record["gap"] = gap_to(overlaps, list(choice.chosen), optimum(overlaps))

        chosen = [overlaps.clusters[i] for i in choice.chosen]
        record["uncovered"] = count - sum(cluster.size for cluster in chosen)
        partial = job.share(partial_labels(cells.of_point, chosen))
        finish = call(tasks.partition, points, partial, rows, precision, threads, score)
        labels, record["score"] = (await job.classical(scoring.needs(finish) if score else finish))[0]
        rank = record["score"] if score else -overlaps.energy(list(choice.chosen))
        if rank is not None and (best is None or rank > best.rank):
            best = Outcome(rank, iteration, labels, chosen_clusters(overlaps, choice, list(drawn.values())))
        if score and rank is not None and rank > threshold:
            break
    if best is None:
        raise InputError("no iteration found two clusters or more", hint="widen the ranges of k and eps")
    result = result_of(source, best, tried, scoring.report() if score else None, threshold)
    if job.output_dir is not None:
        result["files"] = write_all(job.output_dir, source, best.labels, result, plot)
    return result


def _require_extra() -> None:
    """Say before anything runs what workers would only find out later."""
    missing = [name for name in ("numba", "quitefastmst", "scipy") if find_spec(name) is None]
    if missing:
        raise InputError(f"{', '.join(missing)}: not installed", hint='pip install "qloom[clustering]"')


def _require_numbers(whole: dict[str, Any], real: dict[str, Any]) -> None:
    """Parameters come from the command line: say which one is no number before anything runs."""
    for name, value in whole.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{name} must be a whole number, not {value!r}", hint=f"--set {name}=4")
    for name, value in real.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{name} must be a number, not {value!r}", hint=f"--set {name}=0.5")


def _source(data: str | None, blobs: int | None, label: str | int | None) -> Data:
    if (data is None) == (blobs is None):
        raise InputError("one of data and blobs is needed", hint="--set data=points.csv or --set blobs=80000")
    if blobs is not None:
        return make_blobs(blobs)
    return load(str(data), label)


def _check(
    iterations: int,
    shots: int,
    weights: str,
    penalty: str | None,
    plot: str | None,
    eps_min: float | None,
    eps_max: float | None,
) -> None:
    if iterations < 1 or shots < 1:
        raise InputError("iterations and shots must be at least 1")
    if weights not in WEIGHTS:
        raise InputError(f"there are no weights {weights!r}", hint=" or ".join(WEIGHTS))
    if penalty is not None and penalty not in PENALTIES:
        raise InputError(f"there is no penalty {penalty!r}", hint=" or ".join(PENALTIES))
    if plot not in (None, "", "png", "svg"):
        raise InputError(f"plot must be png, svg or empty, not {plot!r}")
    if (eps_min is None) != (eps_max is None):
        raise InputError("eps_min and eps_max belong together", hint="give both or none")
