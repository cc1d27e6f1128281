"""Strategies by name. A name may be followed by another way to hold the QPU: `malleable+share`.

A new strategy is one new file in this folder and one line here.
"""

from __future__ import annotations

from dataclasses import replace

from qloom.errors import InputError, closest
from qloom.model import QpuHold
from qloom.ports import Requirements
from qloom.strategies.base import Strategy
from qloom.strategies.coschedule import Coschedule
from qloom.strategies.malleable import Malleable
from qloom.strategies.offload import Offload
from qloom.strategies.pertask import PerTask
from qloom.strategies.split import Split
from qloom.strategies.vqpu import Vqpu
from qloom.strategies.weave import Weave
from qloom.strategies.workflow import Workflow

STRATEGIES: dict[str, type[Strategy]] = {
    "coschedule": Coschedule,
    "offload": Offload,
    "workflow": Workflow,
    "pertask": PerTask,
    "vqpu": Vqpu,
    "malleable": Malleable,
    "split": Split,
    "weave": Weave,
}


def parse_strategy(text: str) -> tuple[type[Strategy], QpuHold | None]:
    """The class and the hold of `NAME` or `NAME+HOLD`."""
    name, plus, hold = text.partition("+")
    if name not in STRATEGIES:
        meant = closest(name, [*STRATEGIES, "auto"])
        names = f"choose one of {', '.join(STRATEGIES)}, also as NAME+share; run and submit take auto"
        raise InputError(f"no strategy is called {name!r}", hint=f"{meant} {names}".lstrip())
    if not plus:
        return STRATEGIES[name], None
    try:
        return STRATEGIES[name], QpuHold(hold)
    except ValueError:
        raise InputError(f"no way to hold a QPU is called {hold!r}", hint="whole, share or task") from None


def make_strategy(text: str, required: Requirements) -> Strategy:
    """A strategy for one job."""
    kind, hold = parse_strategy(text)
    return kind(replace(required, qpu_hold=hold))
