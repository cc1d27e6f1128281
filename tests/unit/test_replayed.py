"""A program over what others have computed for it: nothing is left to run, or the workflow did something else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qloom.errors import JobError
from qloom.journal.event import Event
from qloom.journal.file import Journal
from qloom.programs.load import Program
from qloom.runs.assembly import Assembly
from qloom.runs.runner import Plan
from qloom.site import Site
from qloom.streamflow.engine import _Replayed, _ReplayedQpus
from qloom.testing import programs
from qloom.worlds.realtime import RealClock
from tests.simulation.harness import simulate_plans


def replayed(past: list[Event], journal: Journal, plan: Plan) -> Any:
    async def main() -> Any:
        world = _Replayed(journal.clock, plan.site.node_names)
        return await Assembly(world, _ReplayedQpus(), journal, past).run_job(plan, 0)

    return asyncio.run(main())


@pytest.mark.parametrize("program", [programs.loop, programs.wide], ids=lambda program: program.__name__)
def test_the_result_is_that_of_the_run_and_what_is_missing_is_told(program):
    plan = Plan(Program("contract", program), {}, "workflow", {}, "virtual", Site())
    ended = simulate_plans([plan], plan.site)
    past = [event for event in ended.events if event.as_dict()["event"] not in ("job_ended", "run_ended")]
    journal = Journal(None, RealClock())
    journal.results = ended.kept
    assert replayed(past, journal, plan) == ended.outcomes[0]
    for missing in ("task_ended", "quantum_ended"):
        place = max(place for place, event in enumerate(past) if event.as_dict()["event"] == missing)
        with pytest.raises(JobError, match="the workflow computed something else than the program asks for"):
            replayed(past[:place], journal, plan)
