"""Ten small data sets, and the table of them: how silhouette and truth compare for each method and the aggregation.

The sets are seeded: five of convex groups, five where the shape or the lack of one is the point. The shapes are
scikit-learn's usual ones (blobs, moons, rings, sheared and varied blobs) and a few more.

Each method and each aggregation sees the same draws of parameters; of all iterations the one with the highest
silhouette counts, as in the program's loop. QUBOs are solved exactly, so the table shows the method, not a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qloom.clustering import tasks
from qloom.clustering.answer import cover, optimum, repair
from qloom.clustering.data import Data, Points, blobs, check
from qloom.clustering.overlap import Labels, adjusted_rand, cells_of
from qloom.clustering.parameters import Ranges, draw, eps_range
from qloom.clustering.picture import draw_panels
from qloom.clustering.qubo import WEIGHTS, graph, partial_labels
from qloom.clustering.silhouette import silhouette_samples
from qloom.errors import InputError

Drawn = tuple[NDArray[np.float64], NDArray[np.int64]]
POINTS = 1500
CONVEX = ("blobs", "varied", "unbalanced", "overlapping", "five-dimensions")
RANGES = Ranges(k=(2, 10), linkage_k=0)
DRAWN_TOYS = ("varied", "moons", "rings")


def toy(name: str, seed: int = 0) -> Data:
    """One of the sets in `TOYS`, in random order, with the group of each point."""
    if name not in TOYS:
        raise InputError(f"unknown toy set {name!r}", hint=", ".join(TOYS))
    random = np.random.default_rng([seed, list(TOYS).index(name)])
    points, truth = TOYS[name](random)
    order = random.permutation(len(points))
    return Data(check(points[order], name), name, truth[order], ("x", "y") if points.shape[1] == 2 else ())


def _groups(
    random: np.random.Generator, middles: NDArray[np.float64], spreads: list[float], sizes: list[int]
) -> Drawn:
    points = [
        random.normal(middle, spread, (size, len(middle)))
        for middle, spread, size in zip(middles, spreads, sizes, strict=True)
    ]
    return np.concatenate(points), np.repeat(np.arange(len(sizes)), sizes)


def _blobs(random: np.random.Generator) -> Drawn:
    middles = np.array([[-8.0, -6], [0, -8], [8, -5], [-7, 6], [1, 3], [9, 6]])
    return _groups(random, middles, [1.0] * 6, [POINTS // 6] * 6)


def _varied(random: np.random.Generator) -> Drawn:
    return _groups(random, np.array([[-9.0, 0], [0, 2], [9, -3]]), [1.0, 2.5, 0.5], [POINTS // 3] * 3)


def _unbalanced(random: np.random.Generator) -> Drawn:
    middles = np.array([[0.0, 0], [10, 0], [10, 8], [0, 9], [-9, 4]])
    return _groups(random, middles, [1.5, 0.7, 0.7, 0.7, 0.7], [1100, 100, 100, 100, 100])


def _overlapping(random: np.random.Generator) -> Drawn:
    middles = np.array([[-5.0, 0], [0, 4], [5, 0], [0, -4]])
    return _groups(random, middles, [1.7] * 4, [POINTS // 4] * 4)


def _five_dimensions(random: np.random.Generator) -> Drawn:
    return _groups(random, random.uniform(-10, 10, (6, 5)), [1.5] * 6, [POINTS // 6] * 6)


def _sheared(random: np.random.Generator) -> Drawn:
    points, truth = _groups(random, np.array([[-6.0, -3], [0, 2], [6, -8]]), [1.0] * 3, [POINTS // 3] * 3)
    return points @ np.array([[0.6, -0.6], [-0.4, 0.8]]), truth


def _moons(random: np.random.Generator) -> Drawn:
    angle = np.linspace(0, np.pi, POINTS // 2)
    upper = np.column_stack([np.cos(angle), np.sin(angle)])
    lower = np.column_stack([1 - np.cos(angle), 0.5 - np.sin(angle)])
    return _with_noise(random, [upper, lower], 0.05)


def _rings(random: np.random.Generator) -> Drawn:
    angle = np.linspace(0, 2 * np.pi, POINTS // 2, endpoint=False)
    outer = np.column_stack([np.cos(angle), np.sin(angle)])
    return _with_noise(random, [outer, 0.5 * outer], 0.05)


def _spirals(random: np.random.Generator) -> Drawn:
    angle = np.sqrt(np.linspace(0.05, 1, POINTS // 2)) * 3 * np.pi
    arm = angle[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return _with_noise(random, [arm, -arm], 0.35)


def _uniform(random: np.random.Generator) -> Drawn:
    return random.uniform(0, 1, (POINTS, 2)), np.zeros(POINTS, np.int64)


def _with_noise(random: np.random.Generator, shapes: list[NDArray[np.float64]], noise: float) -> Drawn:
    points = np.concatenate(shapes)
    truth = np.repeat(np.arange(len(shapes)), [len(shape) for shape in shapes])
    return points + random.normal(0, noise, points.shape), truth


TOYS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "blobs": _blobs,
    "varied": _varied,
    "unbalanced": _unbalanced,
    "overlapping": _overlapping,
    "five-dimensions": _five_dimensions,
    "sheared": _sheared,
    "moons": _moons,
    "rings": _rings,
    "spirals": _spirals,
    "uniform": _uniform,
}


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
