"""Ten small data sets, seeded: five of convex groups, five where the shape or the lack of one is the point.

The shapes are scikit-learn's usual ones (blobs, moons, rings, sheared and varied blobs) and a few more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.data import Data, check
from qloom.errors import InputError

Drawn = tuple[NDArray[np.float64], NDArray[np.int64]]
POINTS = 1500
CONVEX = ("blobs", "varied", "unbalanced", "overlapping", "five-dimensions")


def toy(name: str, seed: int = 0) -> Data:
    """One of the sets in `TOYS`, in random order, with the group of each point."""
    if name not in TOYS:
        raise InputError(f"there is no toy set {name!r}", hint=", ".join(TOYS))
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
