"""Draws timelines with matplotlib: nodes above, QPUs below, the same time axis for every run.

The same input gives the same bytes, so that a figure in a paper can be made again and compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from qloom.errors import InputError
from qloom.views.timeline import (
    GREY,
    INK,
    PALETTE,
    STYLES,
    Panel,
    Run,
    add_legend,
    job_entries,
    lines_of,
    looks_of,
    panel,
    style_entries,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, LEFT_IN, RIGHT_IN = 11.0, 1.0, 0.2
ROW_IN, ROWS_IN = 0.27, 18.0  # a row; what all rows may take together before they get thinner
HEAD_IN, GAP_IN, AXIS_IN, LEGEND_LINE_IN = 0.36, 0.14, 0.34, 0.22
CHARACTER_IN = 0.06
LABELS_AT_MOST = 400

RC: dict[str, Any] = {
    "svg.hashsalt": "qloom",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "text.parse_math": False,  # a task may be called a$b$
    "hatch.linewidth": 0.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def picture(runs: Sequence[Run], kind: str, *, transparent: bool = False) -> bytes:
    """The timelines of some runs as `svg` or `png`."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("drawing needs matplotlib", hint="pip install 'qloom[plot]'") from None
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*missing from (current )?font")  # a task may be called 日本
        matplotlib.rcdefaults()  # whatever style the user has set for other figures
        matplotlib.rcParams.update(RC)  # type: ignore[arg-type]  # its keys are literals
        figure = _figure([panel(run) for run in runs])
        data = BytesIO()
        metadata = (
            {"Date": None, "Creator": None, "Format": None, "Type": None} if kind == "svg" else {"Software": None}
        )
        figure.savefig(data, format=kind, dpi=150, metadata=metadata, transparent=transparent)
    return data.getvalue()


def _figure(panels: Sequence[Panel]) -> Figure:
    from matplotlib.figure import Figure

    jobs = list(dict.fromkeys(job for shown in panels for job in shown.jobs))
    colours = {job: PALETTE[place % len(PALETTE)] for place, job in enumerate(jobs)}
    sizes = [sum(row.height for row in shown.rows) for shown in panels]
    row_in = min(ROW_IN, ROWS_IN / max(1.0, sum(sizes)))
    legends = [job_entries(colours), style_entries(panels)]
    legend_in = 0.1 + LEGEND_LINE_IN * sum(lines_of(entries) for entries in legends)
    height_in = sum(HEAD_IN + size * row_in + GAP_IN for size in sizes) + AXIS_IN + legend_in
    figure = Figure(figsize=(WIDTH_IN, height_in))
    end_s = max((shown.end_s for shown in panels), default=0.0) or 1.0
    unit_s, unit = _unit(end_s)
    top_in = height_in
    for place, (shown, size) in enumerate(zip(panels, sizes, strict=True)):
        top_in -= HEAD_IN + size * row_in
        box = (LEFT_IN / WIDTH_IN, top_in / height_in, 1 - (LEFT_IN + RIGHT_IN) / WIDTH_IN, size * row_in / height_in)
        axes = figure.add_axes(box)
        top_in -= GAP_IN
        _draw(axes, shown, colours, unit_s, end_s * 1.005 / unit_s, row_in, LABELS_AT_MOST // len(panels))
        is_last = place == len(panels) - 1
        axes.tick_params(axis="x", labelbottom=is_last, length=3)
        if is_last:
            axes.set_xlabel(f"{unit} since the run began")
    below_in = legend_in
    for entries in legends:
        add_legend(figure, entries, below_in / height_in)
        below_in -= LEGEND_LINE_IN * lines_of(entries)
    return figure


def _unit(end_s: float) -> tuple[float, str]:
    if end_s <= 600:
        return 1.0, "seconds"
    return (60.0, "minutes") if end_s <= 4 * 3600 else (3600.0, "hours")


def _draw(
    axes: Axes, shown: Panel, colours: dict[str, str], unit_s: float, until: float, row_in: float, labels: int
) -> None:
    axes.patch.set_alpha(0.0)
    axes.set_xlim(0, until)
    axes.set_ylim(sum(row.height for row in shown.rows), 0)
    axes.set_title(shown.title, loc="left", fontsize=10, fontweight="bold", pad=8)
    axes.set_title(shown.note, loc="right", fontsize=7.5, pad=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    for begin, end in shown.gaps:
        axes.axvspan(begin / unit_s, end / unit_s, color=GREY, alpha=0.25, linewidth=0)
    per_in = until / (WIDTH_IN - LEFT_IN - RIGHT_IN)  # time units in an inch
    boxes: dict[tuple[str, str], list[Any]] = {}
    ticks: list[tuple[float, str, bool]] = []
    named: list[tuple[float, float, str, str]] = []
    failed: list[tuple[float, float, str]] = []
    top = 0.0
    for row in shown.rows:
        ticks.append((top + row.height / 2, row.label, row.is_thin))
        margin = 0.0 if row.is_thin else 0.09
        for bar in row.bars:
            height = (row.height - 2 * margin) / bar.lanes
            low = top + margin + bar.lane * height + (0.12 * height if row.is_thin else 0)
            high = low + height * (0.76 if row.is_thin else 1)
            begin, end = bar.begin_s / unit_s, bar.end_s / unit_s
            boxes.setdefault((bar.style, bar.job), []).append([(begin, low), (end, low), (end, high), (begin, high)])
            if bar.failed:
                failed.append((end, (low + high) / 2, bar.job))
            name = bar.job if len(colours) > len(PALETTE) else bar.label  # colours come again: say whose it is
            if bar.style == "busy" and height * row_in > 0.15 and (end - begin) / per_in > _width_in(name) > 0:
                named.append(((begin + end) / 2, (low + high) / 2, name, bar.job))
        top += row.height
    _add_boxes(axes, boxes, colours)
    for x, y, name, job in named[:labels]:
        axes.text(x, y, name, ha="center", va="center", fontsize=6.5, color=_on(colours[job]), clip_on=True)
    _add_marks(axes, shown, colours, unit_s, failed)
    _add_row_names(axes, ticks, row_in)


def _width_in(label: str) -> float:
    return CHARACTER_IN * (len(label) + 1) if label else 0.0


def _on(colour: str) -> str:
    """Black or white, whichever can be read on a colour."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _add_boxes(axes: Axes, boxes: dict[tuple[str, str], list[Any]], colours: dict[str, str]) -> None:
    """One collection a job and style: thousands of bars stay fast."""
    from matplotlib.collections import PolyCollection

    for style in STYLES:
        for job, colour in colours.items():
            if (style, job) in boxes:
                for look in looks_of(style, colour):
                    axes.add_collection(PolyCollection(boxes[style, job], **look), autolim=False)


def _add_marks(
    axes: Axes, shown: Panel, colours: dict[str, str], unit_s: float, failed: list[tuple[float, float, str]]
) -> None:
    for job, (end_s, state) in shown.ends.items():
        marker = "v" if state == "done" else "X"
        axes.plot(
            end_s / unit_s, 0, marker, color=colours[job], markersize=6, clip_on=False, markeredgecolor=INK, mew=0.4
        )
    for x, y, job in failed:
        axes.plot(x, y, "X", color=colours[job], markersize=6, clip_on=False, markeredgecolor=INK, mew=0.4)


def _add_row_names(axes: Axes, ticks: list[tuple[float, str, bool]], row_in: float) -> None:
    step = max(1, round(0.12 / row_in)) if row_in < 0.12 else 1
    shown = [tick for place, tick in enumerate(ticks) if place % step == 0 or tick[2]]
    axes.set_yticks([y for y, _, _ in shown], [name for _, name, _ in shown])
    axes.tick_params(axis="y", length=0)
    for text, (_, _, is_thin) in zip(axes.get_yticklabels(), shown, strict=True):
        text.set_fontsize(6 if is_thin else 8)
        if is_thin:
            text.set_color(GREY)
