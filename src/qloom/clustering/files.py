"""The files of the program: a QUBO and an answer as JSON for steps that run one by one; labels, summary and picture.

A QUBO file holds the clusters (name, found_by, cells, size, weight), the cliques of overlapping ones, which penalty
was used, and the QUBO itself (linear, quadratic) for tools that know nothing of clusters. An answer file holds
values and energy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qloom.clustering.data import Data
from qloom.clustering.overlap import Labels
from qloom.clustering.picture import draw_result
from qloom.clustering.qubo import ClusterCandidate, Graph
from qloom.errors import InputError

FORMAT = "qloom-clustering-qubo-1"


def to_json(graph: Graph) -> dict[str, Any]:
    """The content of a QUBO file."""
    names = [cluster.name for cluster in graph.clusters]
    return {
        "format": FORMAT,
        "clusters": [
            {"name": c.name, "found_by": list(c.found_by), "cells": list(c.cells), "size": c.size, "weight": weight}
            for c, weight in zip(graph.clusters, graph.weights, strict=True)
        ],
        "cliques": [list(clique) for clique in graph.cliques],
        "linear": {name: -weight for name, weight in zip(names, graph.weights, strict=True)},
        "quadratic": [[names[a], names[b], penalty] for (a, b), penalty in graph.penalties.items()],
        "penalty": graph.penalty,
    }


def read_graph(path: Path) -> Graph:
    """The graph of a QUBO file."""
    content = _read(path)
    if content.get("format") != FORMAT:
        raise InputError(f"{path}: not a QUBO file of qloom clustering", hint=f'its "format" must be "{FORMAT}"')
    try:
        clusters = tuple(
            ClusterCandidate(tuple(map(str, c["found_by"])), tuple(map(int, c["cells"])), int(c["size"]))
            for c in content["clusters"]
        )
        weights = tuple(float(c["weight"]) for c in content["clusters"])
        cliques = tuple(tuple(map(int, clique)) for clique in content["cliques"])
        penalty = str(content["penalty"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: a broken QUBO file: {type(error).__name__} {error}") from None
    return Graph(clusters, weights, cliques, penalty)


def read_values(path: Path, graph: Graph) -> Mapping[str, int]:
    """The value of each variable from an answer file."""
    values = _read(path).get("values")
    names = {cluster.name for cluster in graph.clusters}
    if not isinstance(values, dict) or set(values) != names or not all(v in (0, 1) for v in values.values()):
        raise InputError(f'{path}: "values" must give 0 or 1 for each of the {len(names)} variables of the QUBO')
    return values


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"{path}: not a JSON file") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a JSON object")
    return content


def write_labels(path: Path, labels: Labels) -> None:
    """One label per line, in the order of the points, under the header `cluster`."""
    with path.open("w", encoding="utf-8") as file:
        file.write("cluster\n")
        np.savetxt(file, labels, fmt="%d")


def write_json(path: Path, summary: dict[str, Any]) -> None:
    """A summary, readable by people and programs."""
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def write_all(folder: Path, data: Data, labels: Labels, result: dict[str, Any], plot: str | None) -> list[str]:
    """Write everything a run leaves into a folder; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = ["labels.csv", "summary.json"] + ([f"clusters.{plot}"] if plot else [])
    write_labels(folder / "labels.csv", labels)
    if plot:
        score = "" if result["score"] is None else f", silhouette {result['score']:.3f}"
        title = f"{data.name}: {len(result['sizes'])} clusters{score}"
        draw_result(folder / f"clusters.{plot}", data, labels, title)
    write_json(folder / "summary.json", {**result, "files": files})
    return files
