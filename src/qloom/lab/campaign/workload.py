"""The table `workload` of a cell: what it may say, beside what, and which figures such a cell has."""

from __future__ import annotations

from pydantic import Field, ValidationError
from pydantic.types import FiniteFloat

from qloom.errors import InputError
from qloom.lab.campaign.model import JOB_FIGURES, LOAD_FIGURES, CampaignTable, Setting
from qloom.lab.load.arrivals import check_arrivals, check_load
from qloom.lab.load.mix import parse_mix
from qloom.lab.schedulers import make_policy
from qloom.site import first_problem
from qloom.strategies import parse_strategy

OF_JOBS = ("program", "parameters", "engine", "jobs", "job_nodes", "arrivals", "shots")  # not of a workload


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
