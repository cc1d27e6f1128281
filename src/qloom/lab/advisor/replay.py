"""What another strategy would have cost a run: its journal replayed in virtual time, nothing computed."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, replace
from pathlib import Path

from qloom.errors import QloomError
from qloom.journal.event import Event
from qloom.journal.file import ended_as, start_of
from qloom.journal.history import read_history
from qloom.journal.replay import Past
from qloom.lab.advisor.crowd import Waits
from qloom.lab.advisor.known import Known, Replayed
from qloom.lab.advisor.trial import Trial, mean, node_waits_s, run_trial
from qloom.runs.plan import Plan, plan_of
from qloom.runs.runner import read_profile
from qloom.strategies import STRATEGIES
from qloom.views.durations import human_s

MOST_EVENTS = 5000  # a longer journal is not replayed in passing
WORTH = 0.01  # a smaller difference is none


@dataclass(frozen=True)
class Instead:
    """A run replayed as it was, and under the strategy that costs least."""

    own: Trial
    strategy: str
    best: Trial
    cheaper: float  # as a part of the run's own cost

    def __str__(self) -> str:
        if self.cheaper < WORTH:
            return "replayed in virtual time, no other strategy costs less"
        return (
            f"replayed in virtual time, this run takes {human_s(self.own.turnaround_s)} and {self.own.node_s:.1f} "
            f"node-seconds, {self.strategy} {human_s(self.best.turnaround_s)} and {self.best.node_s:.1f}: "
            f"{self.cheaper:.0%} less cost"
        )


def instead(events: list[Event], directory: Path) -> Instead | None:
    """What another strategy would have cost; None if that cannot be told quickly."""
    if ended_as(events) != "done" or len(events) > MOST_EVENTS or "," in start_of(events).strategy:
        return None
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return _replay(events, plan_of(events, directory.name), read_profile(str(directory)))
    except (Exception, SystemExit):  # the program is the user's: it may be gone, changed, or do anything
        return None


def _replay(events: list[Event], plan: Plan, past: Past | None) -> Instead | None:
    if past is None or (plan.program.digest and plan.program.digest != start_of(events).program_digest):
        return None
    on_slurm = plan.world == "slurm"  # elsewhere nobody else is there, and the jobs wait for each other again
    crowd = Waits(mean(node_waits_s(read_history(events))) if on_slurm else 0.0, drawn=False)
    known = Known(events=[events])
    trials: dict[str, Trial] = {}
    for strategy in dict.fromkeys((plan.strategy, *STRATEGIES.built_in)):
        options = plan.options if strategy == plan.strategy else {}
        variant = replace(plan, strategy=strategy, options=options, world="virtual", profile=None)
        with contextlib.suppress(QloomError):
            trials[strategy] = run_trial(variant, Replayed(past), crowd, "replay", known)
    own = trials[plan.strategy]
    value = plan.site.nodes * plan.jobs

    def cost(strategy: str) -> float:
        return value * trials[strategy].turnaround_s + trials[strategy].node_s

    best = min(trials, key=cost)
    return Instead(own, best, trials[best], 1 - cost(best) / max(1e-9, cost(plan.strategy)))
