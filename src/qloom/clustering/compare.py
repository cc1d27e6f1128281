"""How alike two partitions are: adjusted Rand index and normalised mutual information, from the cells."""

from __future__ import annotations

import numpy as np

from qloom.clustering.overlap import Labels, cells_of


def adjusted_rand(truth: Labels, labels: Labels) -> float:
    """1 for the same partition, about 0 for a random one."""
    both, rows, columns = _table(truth, labels)
    count = float(both.sum())
    pairs = [float((sizes * (sizes - 1.0)).sum() / 2) for sizes in (both, rows, columns)]
    expected = pairs[1] * pairs[2] / (count * (count - 1) / 2)
    largest = (pairs[1] + pairs[2]) / 2
    return 1.0 if largest == expected else (pairs[0] - expected) / (largest - expected)


def mutual_information(truth: Labels, labels: Labels) -> float:
    """Normalised by the mean of both entropies: 1 for the same partition, 0 for independent ones."""
    both, rows, columns = _table(truth, labels)
    joint, first, second = (_entropy(sizes) for sizes in (both, rows, columns))
    return 1.0 if first + second == 0 else max(0.0, 2 * (first + second - joint) / (first + second))


def _table(truth: Labels, labels: Labels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sizes of the cells and of both partitions' clusters; noise counts as a cluster of its own."""
    cells = cells_of([truth, labels])
    rows, columns = (np.bincount(of_cell + 1, weights=cells.sizes) for of_cell in cells.labels)
    return cells.sizes.astype(np.float64), rows, columns


def _entropy(sizes: np.ndarray) -> float:
    shares = sizes[sizes > 0] / sizes.sum()
    return float(-(shares * np.log(shares)).sum())
