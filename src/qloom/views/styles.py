"""How the bars of a timeline look, and the legend that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qloom.views.rows import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#24262b"  # text and lines; a page may replace it by its own colour
GREY = "#808080"
# Okabe and Ito's colours, told apart by people with any colour vision; brown and indigo for their black and yellow.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#332288")
LEGEND_COLUMNS = 8
JOBS_IN_LEGEND = 40

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "busy": ("a task runs", {"linewidth": 0.5}),
    "spare": ("spare work runs", {"linewidth": 0.9, "linestyle": ":"}),
    "idle": ("held but idle", {"linewidth": 0.5}),
    "share": ("share of a QPU held", {"linewidth": 0.5}),
    "waiting": ("waits in line", {"linewidth": 0.9}),
}
OPACITY = {"busy": 1.0, "spare": 0.45, "idle": 0.13, "share": 0.35, "waiting": 0.0}


def looks_of(style: str, colour: str) -> list[dict[str, Any]]:
    """What is drawn for a style, one over the other."""
    edge = colour
    if style == "busy":  # darker, to tell tasks apart that follow each other
        edge = "#" + "".join(f"{int(colour[place : place + 2], 16) * 3 // 4:02x}" for place in (1, 3, 5))
    looks: list[dict[str, Any]] = [{"facecolor": (colour, OPACITY[style]), "edgecolor": edge, **STYLES[style][1]}]
    if style == "idle":  # apart from the pale colour, as in SVG the opacity of that would fade the hatching too
        looks.append({"facecolor": "none", "edgecolor": colour, "linewidth": 0.0, "hatch": "/////"})
    return looks


def job_entries(colours: dict[str, str]) -> list[tuple[str, Any]]:
    """The jobs by colour."""
    from matplotlib.patches import Patch

    entries = [
        (f"job {job}", Patch(**looks_of("busy", colour)[0])) for job, colour in list(colours.items())[:JOBS_IN_LEGEND]
    ]
    if len(colours) > JOBS_IN_LEGEND:
        entries.append((f"and {len(colours) - JOBS_IN_LEGEND} more", Patch(alpha=0.0)))
    return entries


def style_entries(panels: Sequence[Panel]) -> list[tuple[str, Any]]:
    """What the ways to draw mean, in grey: they are the same for every job. Only what is in the picture."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen = {bar.style: True for shown in panels for row in shown.rows for bar in row.bars}
    entries: list[tuple[str, Any]] = []
    for style, (name, _) in STYLES.items():
        if style in seen:
            entries.append((name, tuple(Patch(**look) for look in looks_of(style, GREY))))
    marks = {"v" if state == "done" else "X": True for shown in panels for _, state in shown.ends.values()}
    for marker, name in (("v", "job is done"), ("X", "failed or stopped")):
        if marker in marks:
            entries.append((name, Line2D([], [], marker=marker, linestyle="", color=GREY, markersize=6)))
    if any(shown.gaps for shown in panels):
        entries.append(("killed, then resumed", Patch(facecolor=(GREY, 0.25))))
    return entries


def lines_of(entries: list[tuple[str, Any]]) -> int:
    """How many lines these take."""
    return -(-len(entries) // LEGEND_COLUMNS)


def add_legend(figure: Figure, entries: list[tuple[str, Any]], top: float) -> None:
    """Outside the axes, where it hides nothing."""
    if entries:
        figure.legend(
            handles=[handle for _, handle in entries],
            labels=[label for label, _ in entries],
            loc="upper center",
            bbox_to_anchor=(0.5, top),
            ncols=min(LEGEND_COLUMNS, len(entries)),
            frameon=False,
            borderaxespad=0.0,
            borderpad=0.2,
            handlelength=2.0,
            columnspacing=1.4,
        )
