"""Whatever a user's strategy holds while it waits, nothing blocks for ever: jobs give back what they do not use.

`python -m tests.simulation.mixed 2000`, or QLOOM_EXAMPLES=2000 here, runs more of the random ones.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from qloom.errors import NeedError
from qloom.journal.event import Event
from qloom.journal.history import read_history
from qloom.model import Need
from qloom.site import Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.views.accounting import account
from tests.golden import drawn
from tests.golden.drawn import Draw
from tests.journals import as_lines
from tests.simulation import mixed
from tests.simulation.harness import simulate, simulate_plans
from tests.simulation.own_strategies import OWN, Hoard, OneByOne
from tests.simulation.test_liveness import require_sound

PATIENCE_S = 5.0
BLOCK = [("block", [("quantum", 1.0), ("classical", [(1.0, 1)])])]
LONG = [("classical", [(1.0, 1)]), ("quantum", 2.0), ("classical", [(1.0, 1)])]


@pytest.fixture(autouse=True)
def own_strategies(monkeypatch):
    for name, strategy in OWN.items():
        monkeypatch.setitem(STRATEGIES, name, strategy)


def held(events: list[Event], event: str) -> list[dict[str, Any]]:
    return [each for each in as_lines(events) if each["event"] == event]


def test_random_programs_end_with_their_results():
    for seed in range(int(os.environ.get("QLOOM_EXAMPLES", "100"))):
        ended = mixed.run(seed)
        _, site = mixed.draw(seed)
        require_sound(ended.events, max(qpu.lanes for qpu in site.qpus))


def test_faults_and_cancellation_leave_nothing_behind():
    for seed in range(int(os.environ.get("QLOOM_EXAMPLES", "100"))):
        plans, site = mixed.draw(seed)
        draw = Draw("what goes wrong", seed)
        cancelled = {draw.below(len(plans)): draw.length_s() for _ in range(draw.below(3))}
        ended = simulate_plans(plans, site, faults=drawn.faults(draw), cancel_at_s=cancelled)
        require_sound(ended.events, max(qpu.lanes for qpu in site.qpus))
        for number, outcome in enumerate(ended.outcomes):
            if isinstance(outcome, asyncio.CancelledError):
                assert number in cancelled
            elif isinstance(outcome, BaseException):
                assert "injected fault" in str(outcome) or "was lost" in str(outcome), f"seed {seed}: {outcome!r}"


def test_a_broker_that_loses_tasks_is_found_soon_and_the_tasks_are_named():
    """In a process of its own: what is stuck leaves coroutines behind that nobody will ever await."""
    command = [sys.executable, "-m", "tests.simulation.mixed", "20", "--forgetful"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    stuck = re.findall(r"seed \d+: (.*)", done.stdout)
    assert (done.returncode, len(stuck) > 10) == (1, True), done.stdout
    for said in stuck:
        assert re.search(r"job j\d waits for quantum task delay .*, which is lost: its queue does not know it", said)


def test_the_example_of_the_docs_beside_a_job_that_holds_all_nodes():
    """The smallest case that blocked: a block keeps the QPU and waits for nodes of a job that waits for the QPU."""
    ended = simulate([LONG, BLOCK], ["offload", "pause"], Site(nodes=3, qpus=(Qpu(shares=1),)))
    assert not any(isinstance(outcome, BaseException) for outcome in ended.outcomes), ended.outcomes
    (asked,) = [each for each in held(ended.events, "requested") if each["job"] == "j2" and each["nodes"]]
    (given,) = [each for each in held(ended.events, "qpu_released") if each["job"] == "j2"]
    assert given["at_us"] - asked["at_us"] == PATIENCE_S * 1e6


def test_a_qpu_that_a_job_uses_is_kept_however_long_it_waits_for_nodes():
    """The quantum task of an overlapping call is out: the QPU is of use until it is done."""
    overlapping = [("block", [("overlap", [(1.0, 1)], 20.0), ("quantum", 1.0)])]
    busy = [("classical", [(40.0, 3)])]
    ended = simulate([busy, overlapping], ["offload", "pause"], Site(nodes=3))
    done = [each["at_us"] for each in held(ended.events, "quantum_ended") if each["job"] == "j2"]
    given = [each["at_us"] for each in held(ended.events, "qpu_released") if each["job"] == "j2"]
    assert done[0] + PATIENCE_S * 1e6 == given[0]


def test_nodes_that_a_job_does_not_use_are_given_back_and_asked_for_again():
    """Two jobs that gather nodes one by one would each wait for those of the other."""
    narrow = [("classical", [(1.0, 1), (2.0, 1), (3.0, 1)])]
    ended = simulate([narrow, narrow], ["onebyone"], Site(nodes=3))
    assert ended.outcomes[0] == ended.outcomes[1]
    given = [each for each in held(ended.events, "released") if "reason" in each]
    assert given
    assert min(each["at_us"] for each in given) == PATIENCE_S * 1e6
    require_sound(ended.events)


def test_a_job_that_holds_everything_and_asks_for_more_has_it():
    phases = [("classical", [(1.0, 3)]), ("classical", [(2.0, 2)]), ("classical", [(3.0, 1)])]
    ended = simulate([phases], ["hoard"], Site(nodes=3))
    assert account(read_history(ended.events)).wall_s == 1 + PATIENCE_S + 2 + 3, "only the first wait needs the nodes"
    assert ended.outcomes == simulate([phases], ["offload"], Site(nodes=3)).outcomes


def test_nodes_are_kept_while_nobody_of_the_job_waits_in_line():
    """`linger` keeps idle nodes in a long quantum phase: it asks for nothing meanwhile."""
    steps = [("classical", [(1.0, 1)]), ("quantum", 20.0)]
    ended = simulate([steps], ["linger"], Site(nodes=3))
    assert [each for each in held(ended.events, "released") if "reason" in each] == []


class Wide(OneByOne):
    """Gives an allocation of one node a task that needs two."""

    def _run(self, number: int, work: Any) -> Any:
        return self._held[0].run(work)


def test_a_task_that_is_too_wide_for_an_allocation_is_refused_though_its_nodes_were_given_back(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "wide", Wide)
    steps = [("classical", [(1.0, 2)])]
    ended = simulate([steps, steps], ["wide"], Site(nodes=3))
    assert all(isinstance(outcome, NeedError) for outcome in ended.outcomes)
    assert "needs 2 nodes at once, but its job holds 1" in str(ended.outcomes[0])


class Resizing(Hoard):
    """Grows and shrinks what it has not used for long, and puts work on it."""

    async def classical(self, tasks: Any) -> list[Any]:
        if not self._held:
            return await super().classical(tasks)
        first = self._held[0]
        more = asyncio.ensure_future(self.allocate(Need(nodes=3)))
        await asyncio.sleep(PATIENCE_S + 1)
        assert list(first.nodes) == []
        await first.grow(3, within_s=1.0)
        await first.shrink(2)
        self._held.append(await more)
        return [await first.run(work) for work in tasks]


def test_what_was_given_back_can_be_resized_and_used(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "resizing", Resizing)
    steps = [("classical", [(1.0, 3)]), ("classical", [(1.5, 2)])]
    ended = simulate([steps], ["resizing"], Site(nodes=3))
    assert ended.outcomes == simulate([steps], ["offload"], Site(nodes=3)).outcomes
    last = held(ended.events, "granted")[-1]
    assert len(last["nodes"]) == 2, "as many as it was shrunk to"
