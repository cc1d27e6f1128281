"""A figure of what each strategy does to hybrid and to rigid jobs, over the load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qloom.errors import InputError
from qloom.lab.load.intervals import Mean
from qloom.lab.load.metrics import LoadMetrics

Row = tuple[float | None, str, LoadMetrics]  # load, strategy, figures
HOUR_S = 3600.0


def draw(rows: Sequence[Row], path: Path) -> None:
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
            panel.errorbar(at, _hours(means), _half_widths(means), marker="o", capsize=2, lw=1, ms=4, label=strategy)
    for panel, title in zip(panels, ("hybrid jobs: mean turnaround", "rigid jobs: mean wait"), strict=True):
        panel.set(title=title, xlabel="load factor", ylabel="hours", yscale="log", xticks=loads)
        panel.grid(axis="y", alpha=0.3)
    panels[1].legend(fontsize=7)
    try:
        figure.savefig(path, dpi=120, metadata={"Software": None} if path.suffix == ".png" else None)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {path}: {error}") from None


def _hours(means: Sequence[Mean]) -> list[float]:
    return [mean.value / HOUR_S for mean in means]


def _half_widths(means: Sequence[Mean]) -> list[float]:
    """On a logarithmic axis a bar must stay above zero."""
    return [min(mean.half_width, mean.value * 0.95) / HOUR_S for mean in means]
