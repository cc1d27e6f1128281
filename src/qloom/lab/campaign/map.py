"""The map of who wins: classical against quantum duration, with the three rules of the SmartHPC-QC slides on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qloom.devices.technologies import TECHNOLOGIES
from qloom.lab.campaign.cells import MAPPED
from qloom.lab.campaign.charts import colours_of
from qloom.lab.campaign.rows import Result, Results
from qloom.views.timeline import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONG_QUANTUM_S = 1800.0  # "ideal when the quantum portion lasts long (e.g. > 30 min)": workflow
MUCH_LONGER = 10.0  # "classical part much longer than quantum part": virtual QPU
ALIKE = 3.0  # "approximately the same duration": malleability
Winners = dict[tuple[float, float], tuple[str, float]]  # point -> strategy and lead
SHOTS = 1000  # for the technologies on the margin


def draw_map(results: Results) -> Figure:
    """Each cell of the grid has the colour of the strategy that costs least there, and says by how much."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    x_axis, y_axis = results.campaign.map or ("", "")
    figure = Figure(figsize=(9.0, 6.6), layout="constrained")
    axes = figure.subplots()
    winners, colours = winners_of(results), colours_of(results)
    _draw_fields(axes, winners, colours)
    axes.set_xlabel(f"{x_axis.removesuffix('_s')} phase, seconds")
    axes.set_ylabel(f"{y_axis.removesuffix('_s')} phase, seconds")
    axes.set_title(
        "Cheapest strategy: wall time x nodes + node-seconds held\nNumbers: per cent less than the next one",
        fontsize=9,
        loc="left",
    )
    _draw_rules(axes)
    _draw_technologies(axes)
    used = dict.fromkeys(winner for winner, _ in winners.values())
    handles = [Patch(color=colours[name], alpha=0.9, label=name) for name in colours if name in used]
    figure.legend(handles=handles, loc="outside lower center", ncols=8, frameon=False)
    return figure


def winners_of(results: Results) -> Winners:
    """For each point of the map: who costs least, and how much less than the next (0.1: ten per cent)."""
    x_axis, y_axis = results.campaign.map or ("", "")
    points: dict[tuple[float, float], list[Result]] = {}
    for result in results.results:
        point = (float(result.cell.axes[x_axis]), float(result.cell.axes[y_axis]))
        points.setdefault(point, []).append(result)
    winners = {}
    for point, found in points.items():
        ranked = sorted(found, key=lambda result: result.mean(MAPPED))
        best = ranked[0].mean(MAPPED)
        lead = 1 - best / ranked[1].mean(MAPPED) if len(ranked) > 1 else 0.0
        winners[point] = (ranked[0].strategy, lead)
    return winners


def _draw_fields(axes: Axes, winners: Winners, colours: dict[str, str]) -> None:
    """One field a point, on logarithmic axes: the stronger the colour, the greater the lead."""
    xs = sorted({x for x, _ in winners})
    ys = sorted({y for _, y in winners})
    for (x, y), (winner, lead) in winners.items():
        left, right, low, high = *_edges(xs, x), *_edges(ys, y)
        alpha = 0.35 + 0.6 * min(1.0, lead * 4)
        axes.fill([left, right, right, left], [low, low, high, high], color=colours[winner], alpha=alpha)
        axes.text(x, y, f"{100 * lead:.0f}", ha="center", va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(_edges(xs, xs[0])[0], _edges(xs, xs[-1])[1])
    axes.set_ylim(_edges(ys, ys[0])[0], _edges(ys, ys[-1])[1])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")


def _edges(values: list[float], value: float) -> tuple[float, float]:
    """Where the field of a value begins and ends on a logarithmic axis."""
    place = values.index(value)
    step = (values[1] / values[0]) ** 0.5 if len(values) > 1 else 2.0
    low = (values[place - 1] * value) ** 0.5 if place else value / step
    high = (values[place + 1] * value) ** 0.5 if place + 1 < len(values) else value * step
    return low, high


def _draw_rules(axes: Axes) -> None:
    """The three rules, where the slides would put them."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    line: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.1}
    axes.plot([left, right], [LONG_QUANTUM_S] * 2, **line)
    for factor in (1 / MUCH_LONGER, 1 / ALIKE, ALIKE):
        axes.plot([left, right], [left * factor, right * factor], **line)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    note: dict[str, Any] = {
        "fontsize": 8,
        "bbox": {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.5},
    }
    axes.text(left * 1.15, LONG_QUANTUM_S * 1.15, "rule: workflow, quantum over 30 min", va="bottom", **note)
    axes.text(right / 1.1, bottom * 1.15, "rule: vQPU, classical much longer", ha="right", va="bottom", **note)
    axes.text(left * 1.15, left * 1.6, "rule: malleable, alike", rotation=33, rotation_mode="anchor", **note)


def _draw_technologies(axes: Axes) -> None:
    """How long a thousand shots take, on the right margin."""
    right, (bottom, top) = axes.get_xlim()[1], axes.get_ylim()
    for kind in TECHNOLOGIES.values():
        seconds = kind.set_up_s + SHOTS * kind.per_shot_s
        if bottom <= seconds <= top:
            axes.text(right * 1.05, seconds, f"{kind.name}\n1000 shots", fontsize=7, va="center")
