"""What a run says about itself, as plain values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from qloom.clustering.answer import Choice
from qloom.clustering.compare import adjusted_rand, mutual_information
from qloom.clustering.data import Data
from qloom.clustering.overlap import Labels
from qloom.clustering.qubo import Graph


@dataclass(frozen=True)
class Partition:
    """The partition of one iteration; `rank` is what iterations are compared by."""

    rank: float
    iteration: int
    labels: Labels
    clusters: list[dict[str, Any]]


def chosen_clusters(graph: Graph, choice: Choice, drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each chosen cluster: its label in the result, its size and weight, and every clustering that found it."""
    parameters = {given["method"]: given for given in drawn}
    clusters = []
    for label, index in enumerate(choice.chosen):
        cluster = graph.clusters[index]
        found_by = [name.rsplit(":", 1) for name in cluster.found_by]
        sources = [{**parameters[method], "cluster": int(number)} for method, number in found_by]
        clusters.append({"label": label, "size": cluster.size, "weight": graph.weights[index], "found_by": sources})
    return clusters


def repair_report(graph: Graph, choice: Choice) -> dict[str, list[str]]:
    """Which clusters of the answer were dropped, and which were added to it."""
    return {
        "dropped": [graph.clusters[i].name for i in choice.dropped],
        "added": [graph.clusters[i].name for i in choice.added],
    }


def result_of(
    data: Data, best: Partition, tried: list[dict[str, Any]], scoring: dict[str, Any] | None, threshold: float
) -> dict[str, Any]:
    """The result of a run: the same for the same seed, in every world."""
    record = next(record for record in tried if record["iteration"] == best.iteration)
    score = record["score"]
    result: dict[str, Any] = {
        "data": data.name,
        "points": len(data.points),
        "dimensions": data.points.shape[1],
        "score": score,
        "scoring": scoring or "none",
        "threshold": threshold,
        "reached": score is not None and score > threshold,
        "iteration": best.iteration,
        "clusters": best.clusters,
        "sizes": [int(size) for size in np.bincount(best.labels)],
        "labels_digest": hashlib.sha256(best.labels.astype(np.int64).tobytes()).hexdigest()[:16],
        "iterations": tried,
    }
    if data.truth is not None:
        result["ari"] = round(adjusted_rand(data.truth, best.labels), 6)
        result["nmi"] = round(mutual_information(data.truth, best.labels), 6)
    return result
