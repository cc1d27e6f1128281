"""The cells of a campaign: one for each combination of the values of its axes; and the table `workload` of a cell."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, ValidationError
from pydantic.types import FiniteFloat

from qloom.errors import InputError, closest
from qloom.lab.campaign.model import JOB_FIGURES, LOAD_FIGURES, Calibrated, Campaign, CampaignTable, Label, Setting
from qloom.lab.campaign.read import included, resolve
from qloom.lab.load.workload import check_arrivals, check_load, parse_mix
from qloom.lab.schedulers import make_policy
from qloom.site import first_problem
from qloom.strategies import options_of, parse_strategy

OF_JOBS = ("program", "parameters", "engine", "jobs", "job_nodes", "arrivals", "shots")  # not of a workload
PARAMETER = "parameters."
SCALARS = (  # keys of a setting that may be axes by themselves
    *("program", "strategy", "engine", "world", "jobs", "nodes", "job_nodes"),
    *("technology", "shots", "shares", "lanes"),
)
MAPPED = "cost_node_s"  # what a map compares


class Workload(CampaignTable):
    """What the table may say; as the options of `qloom load run`."""

    jobs: int = Field(default=2000, ge=1)
    load: FiniteFloat = 0.7
    arrivals: str = "poisson"
    policy: str = "easy"
    interval_s: FiniteFloat = Field(default=30.0, ge=0)
    hybrid: FiniteFloat = Field(default=0.2, ge=0, le=1)
    mix: str = "balanced"
    hybrid_longest_h: FiniteFloat = Field(default=4.0, gt=0)
    warm_up: FiniteFloat = Field(default=0.1, ge=0, lt=1)


def read_workload(setting: Setting) -> Workload:
    """The checked table of a setting that has one."""
    for name in OF_JOBS:
        if getattr(setting, name):
            own = f"workload = {{ {name} = ... }}" if name in Workload.model_fields else "leave it out"
            raise InputError(f"{name} means nothing beside a workload", hint=own)
    try:
        wanted = Workload.model_validate(setting.workload)
    except ValidationError as error:
        raise InputError(f"workload: {first_problem(error)}") from None
    check_load(wanted.load)
    check_arrivals(wanted.arrivals)
    if wanted.arrivals == "closed" and "load" in wanted.model_fields_set:
        raise InputError("workload: users of a closed loop make the load, it cannot be set", hint="leave load out")
    if setting.nodes == 1:
        raise InputError("a workload needs at least 2 nodes, not 1")
    parse_mix(wanted.mix)
    make_policy(wanted.policy, interval_s=wanted.interval_s)
    parse_strategy(setting.strategies)
    return wanted


def figures_for(setting: Setting) -> tuple[str, ...]:
    """The figures that a cell has; a workload without hybrid or without rigid jobs has none of them."""
    if not setting.workload:
        return JOB_FIGURES
    wanted = read_workload(setting)
    hybrid_jobs = round(wanted.hybrid * wanted.jobs)
    without = [] if hybrid_jobs else ["hybrid_", "harm_"]
    without += ["rigid_", "harm_"] if hybrid_jobs == wanted.jobs else []
    without += ["harm_"] if wanted.arrivals == "closed" else []
    return tuple(figure for figure in LOAD_FIGURES if not figure.startswith(tuple(without)))


@dataclass(frozen=True)
class Cell:
    """One combination; its repeats differ in their seed only."""

    axes: Mapping[str, Label]
    setting: Setting

    @property
    def id(self) -> str:
        """What it is called."""
        return ", ".join(f"{name} {value}" for name, value in self.axes.items()) or "the only cell"

    def matches(self, wanted: Mapping[str, Label]) -> bool:
        """Whether the cell has these values."""
        return all(self.axes.get(name) == value for name, value in wanted.items())


def expand(campaign: Campaign, name: str) -> list[Cell]:
    """All cells, the strategy changing fastest; refuses a matrix without any, and what does not fit it."""
    cells = _included(campaign, name) if campaign.include else _own(campaign, name)
    for claim in campaign.claims:
        for wanted in (claim.of, claim.than):
            _one_cell(cells, wanted, f"campaign {name}: a claim speaks of")
    for part, wanted in campaign.calibrate.items():
        if not any(cell.matches(wanted) for cell in cells):
            raise InputError(f"campaign {name}: calibrate.{part} fits no cell")
    _require_figures(campaign, cells, name)
    _require_published(campaign, cells, name)
    _require_map(campaign, name)
    if campaign.baseline is not None and not any(cell.setting.strategy == campaign.baseline for cell in cells):
        raise InputError(f"campaign {name}: no cell has the baseline's strategy {campaign.baseline!r}")
    return cells


def _own(campaign: Campaign, name: str) -> list[Cell]:
    if not campaign.matrix:
        raise InputError(f"campaign {name}: the matrix is empty", hint='[matrix] strategy = ["offload", "workflow"]')
    axes: dict[str, list[tuple[Label, Setting]]] = {}
    for axis, values in campaign.matrix.items():
        if not values:
            raise InputError(f"campaign {name}: the axis {axis} of the matrix is empty", hint="give it values")
        axes[axis.removeprefix(PARAMETER)] = (
            list(values.items()) if isinstance(values, dict) else [(v, _setting(axis, v, name)) for v in values]
        )
    if "strategy" in axes:  # strategies side by side are what a reader compares
        axes["strategy"] = axes.pop("strategy")
    cells = []
    for combination in itertools.product(*axes.values()):
        setting = campaign.base
        for _, change in combination:
            setting = setting.changed_by(change)
        cells.append(Cell(dict(zip(axes, (label for label, _ in combination), strict=True)), setting))
    _require_options(cells, name)
    return cells


def _setting(axis: str, value: Label, name: str) -> Setting:
    if axis.startswith(PARAMETER):
        return Setting(parameters={axis.removeprefix(PARAMETER): value})
    if axis not in SCALARS:
        raise InputError(
            f"campaign {name}: {axis} is not an axis",
            hint=f"use named settings, parameters.NAME, or {', '.join(SCALARS)}",
        )
    return resolve({"title": name, "base": {axis: value}}, name).base


def _included(campaign: Campaign, name: str) -> list[Cell]:
    """Cells of other campaigns; their first axis says which."""
    if campaign.matrix:
        raise InputError(f"campaign {name}: either include other campaigns or have a matrix, not both")
    cells = []
    for other in campaign.include:
        part = included(other)
        cells += [Cell({"campaign": other, **cell.axes}, cell.setting) for cell in _own(part, other)]
    return cells


def _one_cell(cells: list[Cell], wanted: Mapping[str, Label], what: str) -> None:
    found = sum(cell.matches(wanted) for cell in cells)
    if found != 1:
        words = ", ".join(f"{key} {value}" for key, value in wanted.items())
        raise InputError(f"{what} {words}, which fits {found} cells", hint="it has to fit one")


def _require_figures(campaign: Campaign, cells: list[Cell], name: str) -> None:
    """Each cell can be measured as the campaign wants it."""
    wanted = [*campaign.figures, *(claim.figure for claim in campaign.claims)]
    wanted += [MAPPED] if campaign.map is not None else []
    for cell in cells:
        try:
            known = figures_for(cell.setting)
        except InputError as error:
            raise InputError(f"campaign {name}: {cell.id}: {error.message}", hint=error.hint) from None
        if unknown := [figure for figure in wanted if figure not in known]:
            raise InputError(
                f"campaign {name}: {cell.id} has no figure {unknown[0]}", hint=f"figures may be {', '.join(known)}"
            )


def _require_published(campaign: Campaign, cells: list[Cell], name: str) -> None:
    """Each row of a published table is about one cell."""
    if campaign.published is None:
        return
    axes = list(cells[0].axes)
    figures = [*campaign.figures, *(f"{figure}_sd" for figure in campaign.figures)]
    for column in campaign.published.columns:
        if column not in (*axes, *figures):
            raise InputError(
                f"campaign {name}: the published table has a column {column}", hint=f"axes are {', '.join(axes)}"
            )
    for row in campaign.published.rows:
        known = dict(zip(campaign.published.columns, row, strict=True))
        for column in figures:
            if isinstance(known.get(column), str):
                raise InputError(f"campaign {name}: published {column} must be a number, not {known[column]!r}")
        wanted = {axis: known[axis] for axis in axes if axis in known}
        _one_cell(cells, wanted, f"campaign {name}: the published table does not fit: it has a row for")


def _require_map(campaign: Campaign, name: str) -> None:
    axes = [axis.removeprefix(PARAMETER) for axis in campaign.matrix]
    for axis in campaign.map or ():
        if axis not in axes or axis == "strategy":
            raise InputError(f"campaign {name}: a map needs two axes of numbers, and {axis} is not one")


def _require_options(cells: list[Cell], name: str) -> None:
    """Options are for strategies of the campaign, and those that they have."""
    spelled = list(dict.fromkeys(part for cell in cells for part in cell.setting.strategies.split(",")))
    known = list(dict.fromkeys([*spelled, *(part.partition("+")[0] for part in spelled)]))
    for strategy, options in ((key, value) for cell in cells for key, value in cell.setting.options.items()):
        if strategy not in known:
            hint = closest(strategy, known) or f"there are {', '.join(spelled)}"
            raise InputError(f"campaign {name}: options for {strategy!r}, a strategy of no cell", hint=hint)
        has = options_of(strategy)
        if unknown := [option for option in options if option not in has]:
            hint = f"{closest(unknown[0], list(has))} it has {', '.join(has) or 'none'}".strip()
            raise InputError(f"campaign {name}: strategy {strategy} has no option {unknown[0]!r}", hint=hint)


def published_for(campaign: Campaign, cell: Cell) -> dict[str, float]:
    """The published figures of a cell and their deviations; none if it is not in the table."""
    if campaign.include:
        axes = {name: value for name, value in cell.axes.items() if name != "campaign"}
        return published_for(included(str(cell.axes["campaign"])), Cell(axes, cell.setting))
    if campaign.published is None:
        return {}
    for row in campaign.published.rows:
        known = dict(zip(campaign.published.columns, row, strict=True))
        if cell.matches({axis: known[axis] for axis in cell.axes if axis in known}):
            return {column: float(value) for column, value in known.items() if column not in cell.axes}
    return {}


def calibrated_of(campaign: Campaign) -> dict[str, Calibrated]:
    """Calibrated values, also those of included campaigns."""
    found = dict(campaign.calibrated)
    for other in campaign.include:
        found.update((f"{other}.{key}", value) for key, value in included(other).calibrated.items())
    return found
