"""What a policy is: a state in, starts and resizes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from qloom.errors import InputError
from qloom.lab.schedulers.state import FOREVER_US, Entry, State

Start = tuple[Entry, tuple[int, ...]]  # a job, and the amounts that it is given


class Resize(NamedTuple):
    """Ask a malleable job to hold at most so many nodes; it answers at its next safe point."""

    entry: Entry
    nodes: int


class Decision(NamedTuple):
    """What a policy wants to happen now: jobs with the amounts they are given, and wishes to malleable jobs."""

    starts: Sequence[Start] = ()
    resizes: Sequence[Resize] = ()
    again_us: int = FOREVER_US  # ask again at this time, even if nothing changes until then


class Policy:
    """Decides who starts. `decide` is called at every change, and every `interval_s` to backfill.

    A policy reads the state and never changes it. One instance serves one run, and may remember what it decided.
    """

    options: ClassVar[dict[str, float]] = {"interval_s": 0.0, "depth": 0}

    def __init__(self, **options: float) -> None:
        unknown = [name for name in options if name not in self.options]
        if unknown:
            known = ", ".join(self.options) or "none"
            raise InputError(f"policy {type(self).__name__} has no option {unknown[0]!r}", hint=f"it has: {known}")
        wrong = [name for name, value in options.items() if not 0 <= value < float("inf")]
        if wrong:
            raise InputError(f"option {wrong[0]} must be a finite number of at least 0, not {options[wrong[0]]}")
        settings = {**self.options, **options}
        self.interval_s = settings.get("interval_s", 0.0)  # 0: every change is a backfill pass
        self.depth = int(settings.get("depth", 0))  # how many waiting jobs a backfill pass looks at; 0: all

    def decide(self, state: State) -> Decision:
        """Which jobs start now. Must not change the state."""
        raise TypeError(f"{type(self).__name__} does not say what starts")
