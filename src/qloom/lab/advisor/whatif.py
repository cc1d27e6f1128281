"""What a run would have been under other conditions: its recorded work, replayed in virtual time.

The run is replayed twice, as it was and changed, so that they differ by the change alone and not by the noise of a
real machine. Nothing is computed: durations and results are those of the journal.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qloom.errors import InputError, QloomError
from qloom.journal import home
from qloom.journal.file import ended_as, read_events, start_of
from qloom.journal.fold import RunState
from qloom.journal.history import history_of, read_history
from qloom.journal.replay import Past
from qloom.lab.advisor.crowd import Waits
from qloom.lab.advisor.known import Known, Replayed
from qloom.lab.advisor.trial import mean, node_waits_s, run_trial
from qloom.model import QuantumWork, Work
from qloom.runs.plan import Plan, plan_of
from qloom.runs.runner import read_profile
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account

MOST_EVENTS = 100_000
FIGURES = ("turnaround_s", "node_s_held", "node_s_busy", "qpu_s_held", "qpu_s_busy", "node_wait_s", "qpu_wait_s")


@dataclass(frozen=True)
class Change:
    """What is different; None is as it was."""

    strategy: str | None = None
    nodes: int | None = None
    jobs: int | None = None
    quantum: float = 1.0  # by which the durations of quantum tasks are multiplied
    wait_s: float | None = None  # that each request for nodes waits for other users

    def check(self) -> None:
        """Refuse what no run can be."""
        for name, value, least, most in (
            ("nodes", self.nodes, 1, 100_000),
            ("jobs", self.jobs, 1, 1000),
            ("quantum", self.quantum, 0.0, 1e6),
            ("wait", self.wait_s, 0.0, 1e7),
        ):
            if value is not None and not least <= value <= most:
                raise InputError(f"{name} is between {least:g} and {most:g}, not {value:g}")


@dataclass(frozen=True)
class Replay:
    """A run in virtual time, as it would have been."""

    run: RunState
    strategy: str
    nodes: int
    jobs: int

    @property
    def figures(self) -> dict[str, float]:
        """What it costs."""
        figures = account(history_of(self.run)).as_dict()
        return {name: figures[name] for name in FIGURES}


class Stretched(Replayed):
    """The durations of a run, those of quantum tasks multiplied."""

    def __init__(self, past: Past, quantum: float) -> None:
        super().__init__(past)
        self._quantum = quantum
        self.seconds = self._seconds

    def _seconds(self, work: Work | QuantumWork) -> float | None:
        seconds = self._past.seconds(work)
        return seconds * self._quantum if seconds is not None and isinstance(work, QuantumWork) else seconds


class RecordedRun:
    """A run that is done, to be replayed under other conditions."""

    def __init__(self, directory: Path) -> None:
        home.require_own(directory)
        self._events = read_events(directory)
        name = directory.name
        if ended_as(self._events) != "done":
            raise InputError(f"{name} is not done: only a whole run can be replayed", hint=f"qloom resume {name}")
        if len(self._events) > MOST_EVENTS:
            raise InputError(f"{name} has more than {MOST_EVENTS} events: replaying it would take too long")
        self.plan = plan_of(self._events, name)
        past = read_profile(str(directory))
        assert past is not None  # noqa: S101  the run was named
        self._past = past
        if self.plan.program.digest and self.plan.program.digest != start_of(self._events).program_digest:
            raise InputError(f"the program of {name} has changed since: it cannot be replayed")
        on_slurm = self.plan.world == "slurm"  # elsewhere the jobs wait for each other alone, and do so again
        self.wait_s = mean(node_waits_s(read_history(self._events))) if on_slurm else 0.0

    def replay(self, change: Change) -> Replay:
        """The run with something changed; raises if its program asks for work that it did not do then."""
        change.check()
        plan = self._changed(change)
        plan.check()
        run = RunState()
        wait_s = self.wait_s if change.wait_s is None else change.wait_s
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            durations = Stretched(self._past, change.quantum)
            known = Known(events=[self._events])
            run_trial(plan, durations, Waits(wait_s, drawn=False), "replay", known, listener=run.apply)
        return Replay(run, plan.strategy, plan.site.nodes, plan.jobs)

    def strategies(self, change: Change) -> list[dict[str, Any]]:
        """Every strategy under the changed conditions, the cheapest first; as the advisor weighs them."""
        rows = []
        for strategy in STRATEGIES.built_in:
            with contextlib.suppress(QloomError):
                tried = self.replay(replace(change, strategy=strategy))
                figures = tried.figures
                cost = tried.nodes * tried.jobs * figures["turnaround_s"] + figures["node_s_held"]
                rows.append({"strategy": strategy, "cost_node_s": cost, **figures})
        return sorted(rows, key=lambda row: float(row["cost_node_s"]))

    def _changed(self, change: Change) -> Plan:
        plan = replace(self.plan, world="virtual", profile=None, engine=None, most_qpu_s=None)
        if change.strategy is not None and change.strategy != plan.strategy:
            plan = replace(plan, strategy=change.strategy, options={})
        if change.nodes is not None:
            plan = replace(plan, site=replace(plan.site, nodes=change.nodes))
        return replace(plan, jobs=change.jobs or plan.jobs, site=replace(plan.site, broker=None))
