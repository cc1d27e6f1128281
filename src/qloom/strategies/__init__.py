"""Strategies by name. A name may be followed by another way to hold the QPU: `malleable+share`.

A new strategy is one new file in this folder and one line here, or an entry point `qloom.strategies` of any package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from qloom.errors import InputError
from qloom.model import Need, QpuHold
from qloom.plugins import Registry
from qloom.ports import Requirements
from qloom.strategies.base import Options, Strategy, usual_options

STRATEGIES: Registry[type[Strategy[Any]]] = Registry(
    "qloom.strategies",
    "strategy",
    {
        "coschedule": "qloom.strategies.static:Coschedule",
        "offload": "qloom.strategies.static:Offload",
        "workflow": "qloom.strategies.workflow:Workflow",
        "pertask": "qloom.strategies.workflow:PerTask",
        "vqpu": "qloom.strategies.static:Vqpu",
        "malleable": "qloom.strategies.malleable:Malleable",
        "split": "qloom.strategies.split:Split",
        "weave": "qloom.strategies.weave:Weave",
    },
    expected="a subclass of qloom.strategies.base.Strategy",
    check=lambda found: isinstance(found, type) and issubclass(found, Strategy),
)


def parse_strategy(text: str) -> tuple[type[Strategy[Any]], QpuHold | None]:
    """The class and the hold of `NAME` or `NAME+HOLD`."""
    name, plus, hold = text.partition("+")
    kind = STRATEGIES.choose(name, also=", also as NAME+share; run and submit take auto")
    if not plus:
        return kind, None
    try:
        return kind, QpuHold(hold)
    except ValueError:
        raise InputError(f"no way to hold a QPU is called {hold!r}", hint="whole, share or task") from None


@dataclass(frozen=True)
class Chosen:
    """A strategy for jobs of so many nodes, with its hold of the QPU and its options, before any job."""

    kind: type[Strategy[Any]]
    qpu_hold: QpuHold
    options: Options
    nodes: int

    @property
    def throughout(self) -> Need:
        """What a job holds from its first phase to its end."""
        return self.kind.throughout(self.nodes, self.qpu_hold, self.options)


def choose(text: str, options: Mapping[str, float], nodes: int) -> Chosen:
    """The strategy that is named, with options; refuses those that it does not have."""
    kind, hold = parse_strategy(text)
    return Chosen(kind, hold or kind.usual_qpu_hold, kind.read_options(options, nodes), nodes)


def options_of(text: str) -> dict[str, float]:
    """The options that a strategy has, as they are unless somebody says otherwise."""
    return usual_options(parse_strategy(text)[0].options_type)


def make_strategy(text: str, required: Requirements) -> Strategy[Any]:
    """A strategy for one job."""
    kind, hold = parse_strategy(text)
    return kind(replace(required, qpu_hold=hold))
