"""Random mixed runs with strategies of users among qloom's own: does any of them block for ever?

python -m tests.simulation.mixed 2000                from seed 0 on
python -m tests.simulation.mixed 60 --forgetful      with a broker that loses what is queued
"""

from __future__ import annotations

import sys
from typing import Any

from qloom.broker.queue import events
from qloom.broker.queue.core import QueueCore
from qloom.errors import Deadlock
from qloom.programs.load import Program
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.strategies import STRATEGIES
from tests.golden import drawn
from tests.golden.drawn import Draw
from tests.simulation.harness import Simulation, interpret, simulate, simulate_plans
from tests.simulation.own_strategies import OWN


def draw(seed: int) -> tuple[list[Plan], Site]:
    """Programs under strategies of which at least one is a user's own."""
    rng = Draw("own strategies", seed)
    site = drawn.site(rng)
    plans = []
    for number in range(rng.between(2, 5)):
        steps = drawn.program(rng, site.nodes)
        name, options = drawn.strategy(rng, site.nodes)
        if number == 0 or rng.below(2):
            name, options = rng.choice(list(OWN)) + rng.choice(drawn.HOLDS), {}
        plans.append(Plan(Program("interpret", interpret), {"steps": steps}, name, options, "virtual", site))
    return plans, site


def run(seed: int) -> Simulation:
    """One run; raises `Deadlock` if it blocks. Every job has the results that it would have alone."""
    plans, site = draw(seed)
    ended = simulate_plans(plans, site)
    for plan, outcome in zip(plans, ended.outcomes, strict=True):
        alone = simulate([plan.parameters["steps"]], ["offload"], Site(nodes=site.nodes)).outcomes[0]
        assert outcome == alone, f"seed {seed}, {plan.strategy}: {outcome!r} instead of {alone!r}"
    return ended


def lose_every_third(core: Any, event: Any, now_us: int) -> list[events.Action]:
    """A queue that forgets tasks: it says that it has them, and never starts them."""
    if isinstance(event, events.TaskSubmitted) and int(event.task.id[1:]) % 3 == 0:
        return []
    return handle(core, event, now_us)


handle = QueueCore.handle


def main(count: int, forgetful: bool) -> int:
    """Run so many and tell what blocks."""
    STRATEGIES.update(OWN)
    if forgetful:
        QueueCore.handle = lose_every_third  # type: ignore[method-assign]
    stuck = 0
    for seed in range(count):
        try:
            run(seed)
        except Deadlock as error:
            stuck += 1
            print(f"seed {seed}: {error.message}")
    print(f"{stuck} of {count} runs block for ever")
    return stuck


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), "--forgetful" in sys.argv)))
