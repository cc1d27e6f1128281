"""Pictures of clusters: points of two columns, of two principal components beyond that, a histogram of one column."""

from __future__ import annotations

import colorsys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.data import Data, Points
from qloom.clustering.overlap import NOISE, Labels

DRAWN = 20_000  # points in a picture: more only make it heavier
WIDTH_INCHES, DPI = 8.0, 150  # 1200 pixels
BINS = 120
IN_LEGEND = 20  # clusters; more would not fit beside the points
NUMBERED = 60  # clusters whose number stands among their points; more would hide them
ALIKE = 4.0  # one scale for both axes up to this ratio of their ranges
NOISE_COLOUR = (0.7, 0.7, 0.7)
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class View:
    """What is drawn of the points, and what to call it."""

    x: NDArray[np.float64]
    y: NDArray[np.float64] | None  # None: one column, drawn as a histogram
    names: tuple[str, str]
    note: str


def start_loading() -> None:
    """Import matplotlib in the background: it takes a second, which a driver otherwise spends waiting for tasks."""
    threading.Thread(target=_matplotlib, name="import matplotlib").start()


def draw_result(path: Path, data: Data, labels: Labels, title: str) -> None:
    """One picture of a run's result, with a legend."""
    every = _stride(data.points)
    view, shown = view_of(data, every), labels[::every]
    figure = _figure(0.75 * WIDTH_INCHES)
    axes = figure.add_subplot()
    _draw(axes, view, shown, size=6.0)
    notes = [view.note, f"{len(shown):,} of {len(labels):,} points drawn" if every > 1 else ""]
    axes.set_title("\n".join([title, *filter(None, notes)]), fontsize=10)
    _describe_clusters(axes, view, labels, shown)
    figure.savefig(path)


def draw_panels(path: Path, data: Data, panels: list[tuple[str, Labels]]) -> None:
    """Several labellings of the same points, three in a row; noise is grey."""
    every = _stride(data.points)
    view = view_of(data, every)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = _figure(WIDTH_INCHES * 0.95 * rows / columns)
    for place, (title, labels) in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        _draw(axes, view, labels[::every], size=3.0)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.xaxis.label.set_size(8)
        axes.yaxis.label.set_size(8)
    figure.savefig(path)


def view_of(data: Data, every: int = 1) -> View:
    """The points as they can be drawn on a plane."""
    points = data.points[::every]
    dimensions = points.shape[1]
    names = data.columns or tuple(f"column {number}" for number in range(1, dimensions + 1))
    if dimensions == 1:
        return View(points[:, 0], None, (names[0], "points"), "")
    if dimensions == 2:
        return View(points[:, 0], points[:, 1], (names[0], names[1]), "")
    components, shares = principal_components(points)
    names = tuple(
        f"{which} principal component ({share:.1%} of the variance)"
        for which, share in zip(("first", "second"), shares, strict=True)
    )
    note = f"first two principal components of {dimensions} columns, {shares.sum():.1%} of the variance"
    return View(components[:, 0], components[:, 1], (names[0], names[1]), note)


def principal_components(points: Points) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates along the two directions in which the points vary most, and each direction's share of the variance.

    Columns are not scaled, since the distances that clusterings see are not either.
    """
    centred = points - points.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    first_two = directions[:, :-3:-1]
    strongest = np.take_along_axis(first_two, np.abs(first_two).argmax(axis=0)[None], axis=0)
    return centred @ (first_two * np.sign(strongest)), variances[:-3:-1] / variances.sum()


def colours_of(count: int) -> NDArray[np.float64]:
    """A colour for each cluster: well-known ones if they suffice, else hues far apart in three shades."""
    if count <= 18:
        from matplotlib import colormaps

        palette: Any = colormaps["tab10" if count <= 9 else "tab20"]
        vivid = [colour for colour in palette.colors if max(colour) - min(colour) > 0.05]  # grey is noise
        return np.array(vivid[:count])
    shades = ((0.45, 0.85), (0.65, 0.7), (0.3, 0.7))  # lightness, saturation
    return np.array([colorsys.hls_to_rgb(i * GOLDEN % 1.0, *shades[i % len(shades)]) for i in range(count)])


def _matplotlib() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    return Figure, FigureCanvasAgg


def _figure(height_inches: float) -> Any:
    make_figure, make_canvas = _matplotlib()
    figure = make_figure(figsize=(WIDTH_INCHES, height_inches), dpi=DPI, layout="constrained")
    make_canvas(figure)
    return figure


def _stride(points: Points) -> int:
    """Every which point is drawn; a histogram counts them all."""
    return 1 if points.shape[1] == 1 else -(-len(points) // DRAWN)


def _draw(axes: Any, view: View, labels: Labels, size: float) -> None:
    colours = colours_of(int(labels.max(initial=0)) + 1)
    axes.set_xlabel(view.names[0])
    axes.set_ylabel(view.names[1])
    if view.y is None:
        present = np.unique(labels)
        parts = [view.x[labels == label] for label in present]
        shades = [NOISE_COLOUR if label == NOISE else colours[label] for label in present]
        axes.hist(parts, bins=BINS, stacked=True, color=shades)
        return
    noise = labels == NOISE
    axes.scatter(view.x[noise], view.y[noise], s=size, color=NOISE_COLOUR, linewidths=0, rasterized=True)
    axes.scatter(view.x[~noise], view.y[~noise], s=size, c=colours[labels[~noise]], linewidths=0, rasterized=True)
    ranges = np.ptp(view.x), np.ptp(view.y)
    if max(ranges) <= ALIKE * min(ranges):
        axes.set_aspect("equal", adjustable="datalim")


def _describe_clusters(axes: Any, view: View, labels: Labels, shown: Labels) -> None:
    """Say which colour is which cluster: in a legend if it fits, and by numbers among the points."""
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    sizes = np.bincount(labels)
    colours = colours_of(len(sizes))
    if len(sizes) <= IN_LEGEND:
        marks = [Line2D([], [], linestyle="", marker="o", markersize=6, color=colour) for colour in colours]
        texts = [f"{label}: {size:,} points" for label, size in enumerate(sizes)]
        axes.figure.legend(marks, texts, loc="outside right upper", fontsize=8, title="clusters", frameon=False)
    if view.y is None or len(sizes) > NUMBERED:
        return
    outline = [withStroke(linewidth=2.5, foreground="white")]
    font_size = 9 if len(sizes) <= IN_LEGEND else 7
    for label in np.unique(shown):
        own = shown == label
        at = float(np.median(view.x[own])), float(np.median(view.y[own]))
        axes.annotate(str(label), at, fontsize=font_size, ha="center", va="center", path_effects=outline)
