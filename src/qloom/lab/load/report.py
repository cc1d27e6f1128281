"""The results of loads: tables for a terminal, and a figure of what each strategy does to other jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from qloom.errors import InputError
from qloom.lab.load.metrics import LoadMetrics, Mean

Row = tuple[float | None, str, LoadMetrics]  # load, strategy, figures
HOUR_S = 3600.0


def table_of_loads(rows: Sequence[Row]) -> Table:
    """One row for each load and strategy."""
    harm = any(metrics.harm_s is not None for _load, _name, metrics in rows)
    table = Table(pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
    for heading in ("load", "strategy"):
        table.add_column(heading, no_wrap=True)
    headings = ["hybrid\nwait h", "hybrid\nturn-\naround h", "rigid\nwait h", *(["harm\nh"] if harm else [])]
    for heading in (*headings, "nodes\nheld", "QPUs\nbusy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for load, name, metrics in rows:
        cells = [metrics.hybrid.wait_s, metrics.hybrid.turnaround_s, metrics.rigid.wait_s]
        hours = [_hours(cell) for cell in (*cells, *([metrics.harm_s] if metrics.harm_s else []))]
        table.add_row(
            "-" if load is None else f"{load:g}",
            name,
            *hours,
            f"{metrics.node_held:.0%}",
            "-" if math.isnan(metrics.qpu_utilisation) else f"{metrics.qpu_utilisation:.0%}",
        )
    return table


def table_of_run(metrics: LoadMetrics) -> Table:
    """Everything about one run."""
    table = Table(pad_edge=False, padding=(0, 2, 0, 0), box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    groups = [(name, group) for name in ("all", "rigid", "hybrid") if (group := getattr(metrics, name)).jobs]
    for name, _group in groups:
        table.add_column(name, justify="right", no_wrap=True)
    for label, cells in (
        ("jobs", [str(group.jobs) for _, group in groups]),
        ("  not done", [str(group.failed) for _, group in groups]),
        ("wait, mean h", [_hours(group.wait_s) for _, group in groups]),
        ("  95th percentile h", [_number(group.wait_p95_s / HOUR_S) for _, group in groups]),
        ("turnaround, mean h", [_hours(group.turnaround_s) for _, group in groups]),
        ("  95th percentile h", [_number(group.turnaround_p95_s / HOUR_S) for _, group in groups]),
        ("bounded slowdown, mean", [_mean(group.bounded_slowdown) for _, group in groups]),
        ("  95th percentile", [_number(group.bounded_slowdown_p95) for _, group in groups]),
    ):
        table.add_row(label, *cells)
    table.add_section()
    figures = {
        "fairness over projects": f"{metrics.fairness:.2f}",
        "nodes held": f"{metrics.node_held:.1%}",
        "nodes busy": f"{metrics.node_utilisation:.1%}",
        "jobs ended per hour": f"{metrics.throughput_per_h:.1f}",
        "requeued (node lost or time limit)": f"{metrics.requeues}",
    }
    if metrics.hybrid.jobs:
        figures["QPUs busy"] = f"{metrics.qpu_utilisation:.1%}"
        figures["QPUs idle while wanted, h"] = f"{metrics.qpu_idle_while_wanted_s / HOUR_S:.1f}"
        figures["wasted speculation, node-h"] = f"{metrics.wasted_node_s / HOUR_S:.1f}"
    if metrics.energy_j:
        figures["energy of hybrid jobs, kWh"] = f"{metrics.energy_j / 3.6e6:.1f}"
    if metrics.harm_s is not None:
        figures["harm: rigid jobs wait longer, h"] = _hours(metrics.harm_s)
    for label, cell in figures.items():
        table.add_row(label, cell)
    return table


def _hours(mean: Mean) -> str:
    return _mean(Mean(mean.value / HOUR_S, mean.half_width / HOUR_S))


def _mean(mean: Mean) -> str:
    known = "" if math.isnan(mean.half_width) else f" ±{_number(mean.half_width)}"
    return _number(mean.value) + known


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def draw_loads(rows: Sequence[Row], path: Path) -> None:
    """Two panels: mean turnaround of hybrid jobs and mean wait of rigid ones, with 95 % intervals."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise InputError("figures need matplotlib", hint='pip install "qloom[plot]"') from None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    strategies = list(dict.fromkeys(strategy for _load, strategy, _metrics in rows))
    loads = [load or 0.0 for load in dict.fromkeys(load for load, _strategy, _metrics in rows)]
    for place, strategy in enumerate(strategies):
        own = [(load or 0.0, metrics) for load, name, metrics in rows if name == strategy]
        shift = (place - (len(strategies) - 1) / 2) * 0.012  # so that intervals do not hide each other
        for panel, means in (
            (panels[0], [metrics.hybrid.turnaround_s for _load, metrics in own]),
            (panels[1], [metrics.rigid.wait_s for _load, metrics in own]),
        ):
            at = [load + shift for load, _metrics in own]
            hours = [mean.value / HOUR_S for mean in means]
            panel.errorbar(at, hours, _half_widths(means), marker="o", capsize=2, lw=1, ms=4, label=strategy)
    for panel, title in zip(panels, ("hybrid jobs: mean turnaround", "rigid jobs: mean wait"), strict=True):
        panel.set(title=title, xlabel="load factor", ylabel="hours", yscale="log", xticks=loads)
        panel.grid(axis="y", alpha=0.3)
    panels[1].legend(fontsize=7)
    try:
        figure.savefig(path, dpi=120, metadata={"Software": None} if path.suffix == ".png" else None)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {path}: {error}") from None


def _half_widths(means: Sequence[Mean]) -> list[float]:
    """On a logarithmic axis a bar must stay above zero."""
    return [min(mean.half_width, mean.value * 0.95) / HOUR_S for mean in means]
