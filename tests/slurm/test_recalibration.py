"""A driver that lives in Slurm does about a recalibration what was said when its run was submitted."""

from __future__ import annotations

import pytest

import qloom
from qloom.journal.events import JobEnded, QuantumEnded, Recalibrated
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.runs.submit import submit
from qloom.site import site_from
from tests.slurm.driver import ended
from tests.slurm.waiting import until

PROGRAM = """
from qloom import qubo

async def program(job):
    for step in (1.0, 2.0, 3.0):
        await job.quantum(qubo({("x", "x"): -step}, seconds=1.5))
"""
EVERY_SECOND = [{"for_s": 0.01, "every_s": 1.0}]  # so no two tasks begin under the same calibration


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "driver"), [("offload", "in-job"), ("workflow", "chain")])
def test_a_submitted_run_stops_and_goes_on_when_it_may(strategy, driver, slurm_env, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    site = site_from({"qpus": [{"name": "qpu", "calibration": EVERY_SECOND}]})
    plan = Plan(load_program(str(path)), strategy=strategy, world="slurm", site=site, on_recalibration="stop")
    name = submit(plan, driver).run
    events = ended(name)
    stopped = [event for event in events if isinstance(event, Recalibrated)]
    assert [event.action for event in stopped] == ["stop"]
    (failed,) = (event for event in events if isinstance(event, JobEnded) and event.state == "failed")
    assert failed.error["error"] == "CalibrationChanged"
    assert stopped[0].was != stopped[0].now
    until(lambda: slurm_env.run("squeue", "-h") == "")
    resumed = qloom.resume(name, on_recalibration="continue")
    assert resumed.errors == []
    answers = [event.calibration for event in resumed.events if isinstance(event, QuantumEnded)]
    assert len(answers) == len(set(answers)) == 3
    until(lambda: slurm_env.run("squeue", "-h") == "")
