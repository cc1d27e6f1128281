"""How the ends of Slurm jobs are told, and how often they are asked about."""

from __future__ import annotations

import asyncio

import pytest
from streamflow.core.exception import WorkflowExecutionException

from qloom_streamflow.slurmjobs import Watch, how_it_ended, read_scontrol

LINE = (
    "JobId=7 JobName=x JobState={state} Reason={reason} ExitCode={code} NodeList=c1 StdOut=/tmp/o StartTime=Unknown"
)


@pytest.mark.parametrize(
    ("state", "code", "ran", "why"),
    [
        ("COMPLETED", "0:0", True, "is COMPLETED"),
        ("FAILED", "3:0", True, "is FAILED, exit code 3"),
        ("CANCELLED", "0:0", False, "is CANCELLED"),
        ("CANCELLED", "0:15", False, "is CANCELLED, signal 15"),
        ("TIMEOUT", "0:15", False, "is TIMEOUT"),
        ("FAILED", "0:9", False, "is FAILED, signal 9"),
    ],
)
def test_only_a_job_that_ran_to_its_end_has_an_exit_code(state, code, ran, why):
    ended = read_scontrol(LINE.format(state=state, reason="None", code=code))
    assert ended.ran is ran
    assert why in ended.why()


def test_the_accounting_is_asked_when_slurmctld_has_forgotten():
    async def ask(command):
        return ("Invalid job id", 1) if command[0] == "scontrol" else ("CANCELLED by 0|0:15|c2|Unknown|Unknown", 0)

    ended = asyncio.run(how_it_ended(ask, "7"))
    assert (ended.state, ended.signal, ended.nodes) == ("CANCELLED", 15, "c2")


def test_a_job_that_nobody_knows_is_an_error():
    async def ask(command):
        return "", 1

    with pytest.raises(WorkflowExecutionException, match="job 7: neither"):
        asyncio.run(how_it_ended(ask, "7"))


def test_a_slurmctld_that_is_away_for_a_while_ends_nothing():
    answers = iter([("slurm_load_jobs error: Unable to contact slurm controller", 1), ("7|RUNNING|c1", 0), ("", 0)])
    started = []

    async def ask(command):
        if command[0] == "squeue":
            return next(answers)
        return LINE.format(state="COMPLETED", reason="None", code="0:0"), 0

    async def main():
        return await Watch(ask, 5.0, lambda job, nodes: started.append((job, nodes))).end_of("7")

    assert asyncio.run(main()).state == "COMPLETED"
    assert started == [("7", "c1")]
