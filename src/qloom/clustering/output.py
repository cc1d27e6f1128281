"""What a run leaves for its user: labels as CSV, a summary as JSON, and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from qloom.clustering.data import Data, Points
from qloom.clustering.overlap import NOISE, Labels

DRAWN = 20_000  # points in a picture: more only make it heavier


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
        draw_clusters(folder / f"clusters.{plot}", data.points, [(f"{data.name}{score}", labels)])
    write_json(folder / "summary.json", {**result, "files": files})
    return files


def draw_clusters(path: Path, points: Points, panels: list[tuple[str, Labels]]) -> None:
    """A scatter plot of the two widest dimensions for each labelling, three in a row; noise is grey."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    every = -(-len(points) // DRAWN)
    widest = np.sort(np.argsort(-np.ptp(points, axis=0), kind="stable")[:2])
    x = points[::every, widest[0]]
    y = points[::every, widest[1]] if len(widest) > 1 else np.zeros(len(x))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 3.1 * rows), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, labels) in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        shown = labels[::every]
        palette = "tab10" if shown.max(initial=0) < 10 else "tab20"
        colours = 10 if palette == "tab10" else 20
        axes.scatter(x[shown == NOISE], y[shown == NOISE], s=3, c="0.7", linewidths=0, rasterized=True)
        inside = shown != NOISE
        axes.scatter(
            x[inside], y[inside], s=3, c=shown[inside] % colours, cmap=palette, vmin=0, vmax=colours - 1,
            linewidths=0, rasterized=True,
        )  # fmt: skip
        axes.set_title(title, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="datalim")
    figure.savefig(path)
