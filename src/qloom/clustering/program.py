"""Clustering aggregation as a qloom program.

Each iteration clusters the points in several ways, lets a QPU choose clusters that do not overlap, and scores the
partition that follows. The loop ends when the score passes a threshold; otherwise the best one so far counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from qloom.clustering import tasks
from qloom.clustering.answer import gap as gap_to
from qloom.clustering.answer import optimum_by_search, repair
from qloom.clustering.files import write_all
from qloom.clustering.overlap import Labels, cells_of
from qloom.clustering.parameters import Ranges, checked_points
from qloom.clustering.picture import start_loading
from qloom.clustering.qubo import graph, partial_labels, terms
from qloom.clustering.report import Partition, chosen_clusters, repair_report, result_of, summary_of
from qloom.clustering.tasks import Scoring, prepare
from qloom.errors import InputError
from qloom.model import call

if TYPE_CHECKING:
    from qloom.job.job import Job

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
    source = checked_points(locals())  # which are the parameters, so far
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
    best: Partition | None = None
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
        asked = job.quantum(terms(overlaps), shots=shots, expected_s=quantum_s)
        if (
            speculate and iteration + 1 < iterations
        ):  # the next clusterings do not wait for the answer: spare work meanwhile
            later = clusterings.draw(iteration + 1)
            job.speculate(*(clusterings.task(later[key]) for key in later if key not in known))
        if iteration == 0 and plot and job.output_dir is not None:
            start_loading()
        choice = repair(overlaps, (await asked).values)
        record["repair"] = repair_report(overlaps, choice)
        if gap and len(overlaps.clusters) <= GAP_LIMIT:
            record["gap"] = gap_to(overlaps, list(choice.chosen), optimum_by_search(overlaps, cells.sizes.tolist()))

        chosen = [overlaps.clusters[i] for i in choice.chosen]
        record["uncovered"] = count - sum(cluster.size for cluster in chosen)
        partial = job.share(partial_labels(cells.of_point, chosen))
        finish = call(tasks.partition, points, partial, rows, precision, threads, score)
        labels, record["score"] = (await job.classical(scoring.needs(finish) if score else finish))[0]
        rank = record["score"] if score else -overlaps.energy(list(choice.chosen))
        if rank is not None and (best is None or rank > best.rank):
            best = Partition(rank, iteration, labels, chosen_clusters(overlaps, choice, list(drawn.values())))
        if score and rank is not None and rank > threshold:
            break
    if best is None:
        raise InputError("no iteration found two clusters or more", hint="widen the ranges of k and eps")
    result = result_of(source, best, tried, scoring.report() if score else None, threshold)
    if job.output_dir is not None:
        result["files"] = write_all(job.output_dir, source, best.labels, result, plot)
    return result


cast(Any, program).summary_of = summary_of  # what `qloom run` prints instead of the whole result
