"""Options of strategies: the same names and numbers on the command line, in files and in journals, typed inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import qloom
from qloom.errors import InputError
from qloom.model import Need, QpuHold
from qloom.strategies import STRATEGIES, choose, options_of
from qloom.strategies.base import Options, read_options


@dataclass(frozen=True)
class Some(Options):
    """One of each type."""

    switch: bool = False
    count: int = 2
    length_s: float = 1.5


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, Some()),
        ({"switch": 1}, Some(switch=True)),
        ({"switch": True}, Some(switch=True)),
        ({"switch": 0.0, "count": 3.0, "length_s": 2}, Some(False, 3, 2.0)),
    ],
)
def test_numbers_are_read_as_what_they_stand_for(given: dict[str, float], read: Some):
    options = read_options(Some, given)
    assert options == read
    assert [type(value) for value in vars(options).values()] == [bool, int, float]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"swich": 1}, "no option 'swich' .*switch.* it has: switch, count, length_s"),
        ({"switch": 0.5}, "option switch is true or false"),
        ({"count": 2.5}, "option count must be a whole number, not 2.5"),
        ({"count": -1}, "option count must be a finite number of at least 0"),
        ({"length_s": float("nan")}, "option length_s must be a finite number"),
        ({"length_s": "long"}, "option length_s is a number, not 'long'"),
    ],
)
def test_wrong_names_and_values_are_refused(given: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        read_options(Some, given)


def test_every_strategy_takes_its_own_options_as_they_are_written_in_journals():
    for name in STRATEGIES:
        written = {option: float(value) for option, value in options_of(name).items()}
        assert choose(name, written, 3) == choose(name, {}, 3)


def test_a_strategy_says_what_it_holds_throughout():
    held = {name: choose(name, {}, 3).throughout for name in ("coschedule", "offload", "vqpu", "malleable", "weave")}
    assert held == {
        "coschedule": Need(3, QpuHold.WHOLE),
        "offload": Need(3, QpuHold.TASK),
        "vqpu": Need(3, QpuHold.SHARE),
        "malleable": Need(1, QpuHold.TASK),
        "weave": Need(),
    }
    assert choose("malleable+share", {"min_nodes": 2}, 3).throughout == Need(2, QpuHold.SHARE)


async def nothing(job: Any) -> None:
    """A program."""


def test_a_switch_may_be_given_as_true_or_false():
    for value in (False, 0):
        assert qloom.run(nothing, strategy="split", options={"lookahead": value}, world="virtual", in_memory=True)
