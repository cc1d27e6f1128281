"""Draws the results of a campaign: bars beside the published figures, nodes over time, and the map of who wins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

from qloom.errors import InputError
from qloom.journal.event import Event
from qloom.journal.history import read_history
from qloom.lab.campaign.cells import published_for
from qloom.lab.campaign.figures import spread_of
from qloom.lab.campaign.formats import AS_IT_COUNTS, HEADINGS
from qloom.lab.campaign.rows import Result, Results
from qloom.views.picture import RC, WIDTH_IN
from qloom.views.timeline import GREY, INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIMELINES_AT_MOST = 12
JOBS_AT_MOST = 10  # more cannot be distinguished, and make a page of megabytes
GROUPS_AT_MOST = 24
BAR_IN, TIMELINE_IN, HEAD_IN = 2.4, 1.05, 0.5


@contextmanager
def _plain_style() -> Iterator[None]:
    """Whatever style the user has set for other figures; the same input gives the same bytes."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("drawing needs matplotlib", hint="pip install 'qloom[plot]'") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)  # type: ignore[arg-type]  # its keys are literals
        yield


def saved(figure: Figure, kind: str, *, transparent: bool = False) -> bytes:
    """A figure as bytes without a date."""
    data = BytesIO()
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None} if kind == "svg" else {"Software": None}
    figure.savefig(data, format=kind, dpi=150, metadata=metadata, transparent=transparent)
    return data.getvalue()


def drawing_of(results: Results, what: str, kind: str) -> bytes:
    """The map, the bars, or the nodes over time; `auto` is the map if the campaign has one, and else the bars."""
    match what if what != "auto" else "bars" if results.campaign.map is None else "map":
        case "map" if results.campaign.map is not None:
            from qloom.lab.campaign.map import draw_map

            with _plain_style():
                return saved(draw_map(results), kind)
        case "bars":
            return bars(results, kind)
        case "nodes":
            return nodes_over_time(results, kind)
        case "map":
            raise InputError(f"campaign {results.asked.name} has no map", hint="map = two of its axes")
        case _:
            raise InputError(f"no drawing is called {what!r}", hint="map, bars or nodes")


def colours_of(results: Results) -> dict[str, str]:
    """A colour for each strategy, the same in every picture of a campaign."""
    names = dict.fromkeys(result.strategy for result in results.results)
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}


def bars(results: Results, kind: str, *, transparent: bool = False) -> bytes:
    """One panel a figure: groups of strategies; published figures as lines across the bars."""
    from matplotlib.figure import Figure

    with _plain_style():
        figures = results.campaign.figures
        height_in = HEAD_IN + BAR_IN * len(figures)
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        panels = figure.subplots(len(figures), 1, squeeze=False)[:, 0]
        for axes, name in zip(panels, figures, strict=True):
            _draw_bars(axes, results, name)
        legends = [panel.get_legend_handles_labels() for panel in panels]
        named = {label: handle for handles, labels in legends for handle, label in zip(handles, labels, strict=True)}
        figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=8, frameon=False)
        return saved(figure, kind, transparent=transparent)


def _groups(results: Results) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results.results:
        others = [f"{name} {value}" for name, value in result.cell.axes.items() if name != "strategy"]
        groups.setdefault("\n".join(others), []).append(result)
    return dict(list(groups.items())[:GROUPS_AT_MOST])


def _draw_bars(axes: Axes, results: Results, figure: str) -> None:
    colours, groups = colours_of(results), _groups(results)
    width = 0.8 / max(1, max(len(group) for group in groups.values()))
    named: dict[str, bool] = {}
    for place, group in enumerate(groups.values()):
        for slot, result in enumerate(group):
            found = spread_of([figures[figure] for figures in result.figures])
            x = place - 0.4 + (slot + 0.5) * width
            label = "" if result.strategy in named else result.strategy
            axes.bar(x, found.mean, width * 0.92, color=colours[result.strategy], label=label)
            named[result.strategy] = True
            if (height := result.as_published(figure)) != found.mean:
                label = "" if AS_IT_COUNTS in named else AS_IT_COUNTS
                axes.bar(x, height, width * 0.92, fill=False, edgecolor=INK, linestyle=":", label=label)
                named[AS_IT_COUNTS] = True
            if found.n > 1:
                axes.errorbar(x, found.mean, found.ci95, color=INK, linewidth=0.8, capsize=2)
            known = published_for(results.campaign, result.cell).get(figure)
            if known is not None and results.asked.conditions.scale == 1:
                label = "" if "published" in named else "published"
                axes.plot([x - width / 2, x + width / 2], [known, known], color=INK, linewidth=1.4, label=label)
                named["published"] = True
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel(HEADINGS[figure])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    _bare(axes)


def nodes_over_time(results: Results, kind: str, *, transparent: bool = False) -> bytes:
    """Nodes held by each job, one above the other, as in figure 2 of the QCE25 paper."""
    from matplotlib.figure import Figure

    chosen = worth_drawing(results)[:TIMELINES_AT_MOST]
    if not chosen:
        raise InputError(
            f"campaign {results.asked.name} has workloads: no nodes over time are kept", hint="draw bars"
        )
    with _plain_style():
        figure = Figure(figsize=(WIDTH_IN, HEAD_IN + TIMELINE_IN * len(chosen)), layout="constrained")
        panels = figure.subplots(len(chosen), 1, squeeze=False, sharex=True)[:, 0]
        for axes, result in zip(panels, chosen, strict=True):
            _draw_nodes(axes, results.events(result))
            axes.set_title(result.cell.id, loc="left", fontsize=8)
        panels[-1].set_xlim(left=0)
        panels[-1].set_xlabel("seconds since the run began")
        return saved(figure, kind, transparent=transparent)


def worth_drawing(results: Results) -> list[Result]:
    """The cells whose timelines show the most: those of the most jobs, if these can be distinguished."""
    found = [result for result in results.results if not result.cell.setting.workload]
    counts = [result.cell.setting.jobs or 1 for result in found]
    most = max((count for count in counts if count <= JOBS_AT_MOST), default=min(counts, default=0))
    return [result for result, count in zip(found, counts, strict=True) if count == most]


def _draw_nodes(axes: Axes, events: Sequence[Event]) -> None:
    history = read_history(events)
    held = [interval for interval in history.intervals if interval.kind == "node"]
    times_us = sorted({0} | {at for interval in held for at in (interval.begin_us, interval.end_us)})
    below = [0] * len(times_us)
    for place, job in enumerate(history.jobs):
        own = [interval for interval in held if interval.job == job]
        counts = [sum(len(i.resources) for i in own if i.begin_us <= at < i.end_us) for at in times_us]
        top = [low + count for low, count in zip(below, counts, strict=True)]
        seconds = [at / 1e6 for at in times_us]
        axes.fill_between(seconds, below, top, step="post", color=PALETTE[place % len(PALETTE)], linewidth=0)
        below = top
    count = len(dict.fromkeys(node for interval in held for node in interval.resources))
    axes.set_ylim(0, count + 0.2)
    axes.set_yticks(range(0, count + 1, max(1, count // 3)))
    axes.set_ylabel("nodes")
    _bare(axes)


def _bare(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
