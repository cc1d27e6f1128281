"""The result of a run: as plain values, and as people read it in a few lines of at most 80 columns."""

from __future__ import annotations

import hashlib
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qloom.clustering.answer import Choice
from qloom.clustering.data import Data
from qloom.clustering.overlap import Labels, adjusted_rand, mutual_information
from qloom.clustering.qubo import Graph

WIDTH = 80
INDENT = 13
LARGEST = 12  # clusters with a line each; a long list would hide the rest


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


def summary_of(result: Mapping[str, Any], directory: Path | None) -> str:
    """What the run found, and where its files are."""
    dimensions = "1 dimension" if result["dimensions"] == 1 else f"{result['dimensions']} dimensions"
    lines = [
        *_field("data", f"{result['data']}, {result['points']:,} points in {dimensions}"),
        *_field("clusters", _sizes(result["sizes"])),
        *_field("silhouette", _score(result)),
        *_field("iterations", _iterations(result)),
    ]
    if "ari" in result:
        lines += _field("known labels", f"agreement {result['ari']:.3f} (ARI), {result['nmi']:.3f} (NMI)")
    lines += [*_field("clusterings", _clusterings(result)), "", *_clusters(result)]
    if directory is not None and result.get("files"):
        lines += ["", *_field("files", ", ".join(result["files"])), " " * INDENT + str(directory)]
    return "\n".join(lines)


def _sizes(sizes: list[int]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{len(sizes)}, of {low:,} points each" if low == high else f"{len(sizes)}, of {low:,} to {high:,} points"


def _score(result: Mapping[str, Any]) -> str:
    if result["score"] is None:
        return "not computed"
    scoring = result["scoring"]
    sample = "" if scoring["silhouette"] == "exact" else f", of a sample of {scoring['scored_points']:,} points"
    against = "above" if result["reached"] else "not above"
    return f"{result['score']:.3f}{sample}, {against} the threshold of {result['threshold']:g}"


def _iterations(result: Mapping[str, Any]) -> str:
    tried, best = len(result["iterations"]), result["iteration"] + 1
    return "1" if tried == 1 else f"{tried}, this is the result of number {best}"


def _clusters(result: Mapping[str, Any]) -> list[str]:
    """A line for each of the largest clusters, with the clusterings that found it."""
    sizes, count = result["sizes"], result["points"]
    found_by = {cluster["label"]: cluster["found_by"] for cluster in result["clusters"]}
    by_size = sorted(range(len(sizes)), key=lambda label: (-sizes[label], label))
    lines = ["cluster     points   share   found by"]
    for label in by_size[:LARGEST]:
        methods = ", ".join(source["method"] for source in found_by.get(label, []))
        lines.append(f"{label:7} {sizes[label]:10,} {sizes[label] / count:7.1%}   {methods}")
    if rest := [sizes[label] for label in by_size[LARGEST:]]:
        lines.append(f"{'...':>7} {sum(rest):10,} {sum(rest) / count:7.1%}   {len(rest)} more clusters")
    return lines


def _clusterings(result: Mapping[str, Any]) -> str:
    """The clusterings that were combined, and how many clusters of the result each of them found."""
    found = Counter(source["method"] for cluster in result["clusters"] for source in cluster["found_by"])
    parts = []
    for drawn in result["iterations"][result["iteration"]]["clusterings"]:
        given = ", ".join(f"{name} = {value:g}" for name, value in drawn.items() if name not in ("method", "seed"))
        parts.append(f"{drawn['method']} ({given}) contributes {found[drawn['method']]}")
    return "; ".join(parts)


def _field(name: str, text: str) -> list[str]:
    """A name and a text of one or more lines beside it."""
    return textwrap.wrap(text, WIDTH, initial_indent=f"{name:{INDENT}}", subsequent_indent=" " * INDENT)
