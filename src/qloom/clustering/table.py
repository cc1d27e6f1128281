"""The ten toy sets, clustered by each method and by their aggregation: how silhouette and truth compare.

Each method and each aggregation sees the same draws of parameters; of all iterations the one with the highest
silhouette counts, as in the program's loop. QUBOs are solved exactly, so the table shows the method, not a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qloom.clustering import tasks
from qloom.clustering.answer import cover, repair
from qloom.clustering.compare import adjusted_rand
from qloom.clustering.data import Data, Points, blobs
from qloom.clustering.optimum import optimum
from qloom.clustering.overlap import Labels, cells_of
from qloom.clustering.parameters import Ranges, draw, eps_range
from qloom.clustering.picture import draw_panels
from qloom.clustering.qubo import WEIGHTS, graph, partial_labels
from qloom.clustering.silhouette import silhouette_samples
from qloom.clustering.toys import CONVEX, TOYS, toy
from qloom.errors import InputError

RANGES = Ranges(k=(2, 10), linkage_k=0)
DRAWN_TOYS = ("varied", "moons", "rings")


@dataclass(frozen=True)
class Row:
    """The best partition of one method on one data set."""

    data: str
    method: str
    silhouette: float
    ari: float
    labels: Labels


def aggregate(points: Points, labelings: list[Labels], names: list[str], weights: str) -> Labels:
    """The partition that combines some clusterings best, by the exact optimum of the QUBO."""
    cells = cells_of(labelings)
    sums = None
    if weights == "silhouette":
        sums = tasks.cluster_silhouettes.function(points, None, "double", 1, *labelings)
    overlaps = graph(cells, names, sums)
    best = {overlaps.clusters[i].name: 1 for i in optimum(overlaps)}
    chosen = [overlaps.clusters[i] for i in repair(overlaps, best).chosen]
    return cover(points, partial_labels(cells.of_point, chosen))


def compare(data: Data, seed: int = 0, iterations: int = 10, ranges: Ranges = RANGES) -> list[Row]:
    """Rows for each method, then for the aggregation with each kind of weights."""
    if data.truth is None:
        raise InputError(f"{data.name}: known labels are needed to compare with")
    eps = ranges.eps or eps_range(data.points, ranges.min_pts)
    names = list(ranges.methods)
    best: dict[str, Row] = {}
    for iteration in range(iterations):
        labelings = [tasks.clustering.function(data.points, drawn) for drawn in draw(ranges, eps, seed, iteration)]
        found = dict(zip(names, labelings, strict=True))
        found |= {f"aggregate, {kind}": aggregate(data.points, labelings, names, kind) for kind in WEIGHTS[::-1]}
        for method, labels in found.items():
            complete = cover(data.points, labels)
            if len(np.unique(complete)) < 2:
                continue
            value = float(silhouette_samples(data.points, [complete], precision="double").mean())
            if method not in best or value > best[method].silhouette:
                best[method] = Row(data.name, method, value, adjusted_rand(data.truth, complete), complete)
    return [best[method] for method in [*names, "aggregate, size", "aggregate, silhouette"] if method in best]


def toy_table(seed: int = 0, iterations: int = 10) -> list[Row]:
    """All rows of the ten toy sets."""
    return [row for name in TOYS for row in compare(toy(name, seed), seed, iterations)]


def markdown(rows: list[Row]) -> str:
    """The table as it stands in the docs: silhouette / ARI, the best silhouette of a set in bold."""
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = ["| data | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name in dict.fromkeys(row.data for row in rows):
        own = {row.method: row for row in rows if row.data == name}
        top = max(round(row.silhouette, 3) for row in own.values())
        fields = []
        for method in methods:
            row = own.get(method)
            text = "one cluster" if row is None else f"{row.silhouette:.3f} / {row.ari:.3f}"
            fields.append(f"**{text}**" if row is not None and round(row.silhouette, 3) == top else text)
        lines.append(f"| {name}{' (convex)' if name in CONVEX else ''} | " + " | ".join(fields) + " |")
    return "\n".join(lines)


def pictures(folder: Path, seed: int = 0) -> list[Path]:
    """The pictures of the docs: one iteration on the paper's blobs, and the best of ten on a few toy sets."""
    folder.mkdir(parents=True, exist_ok=True)
    published = Ranges(eps=(1.2, 4.5))
    shown = [("blobs", blobs(8000), compare(blobs(8000), seed + 1, 1, published))]
    shown += [(name, toy(name, seed), compare(toy(name, seed), seed)) for name in DRAWN_TOYS]
    written = []
    for name, data, rows in shown:
        panels = [] if data.truth is None else [("the groups as they were made", data.truth)]
        panels += [(f"{row.method}\nsilhouette {row.silhouette:.3f}, ARI {row.ari:.3f}", row.labels) for row in rows]
        written.append(folder / f"clustering-{name}.png")
        draw_panels(written[-1], data, panels)
    return written
