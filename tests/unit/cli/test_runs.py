"""What `qloom runs` says of runs that have not ended, and which runs it leaves out."""

from __future__ import annotations

import pytest

from qloom.journal import home
from qloom.journal.events import RunEnded, RunStarted
from qloom.journal.file import Journal
from qloom.journal.queries import HANDED_ON
from tests.unit.cli.typed import refused


class Clock:
    def now_us(self):
        return 0


def begin(**last):
    """The journal of a run, still open, that ends as told."""
    journal = Journal(home.new_run(), Clock())
    journal.record(RunStarted(program="phases", strategy="offload", world="slurm", jobs=1))
    if last:
        journal.record(RunEnded(**last))
    return journal


def states(cli):
    return [row["state"] for row in cli("runs", "--json").json]


def test_a_running_one_and_a_killed_one(cli):
    journal = begin()
    assert states(cli) == ["running"]
    journal.close()
    assert states(cli) == ["killed"]


@pytest.mark.parametrize(
    ("squeue", "state"),
    [
        ("echo '9|PENDING|N/A|N/A||qloom|(null)|Priority'", "submitted"),
        ("echo '9|RUNNING|1|2|c1|qloom|(null)|None'", "running"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "killed"),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "submitted"),
    ],
)
def test_a_submitted_one_is_as_slurm_says(cli, monkeypatch, tmp_path, squeue, state):
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    begin(state=HANDED_ON, engine_id="9").close()
    assert states(cli) == [state]


def test_without_slurm_a_submitted_one_is_just_that(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    begin(state=HANDED_ON, engine_id="9").close()
    assert states(cli) == ["submitted"]


def test_cells_of_campaigns_are_left_out_and_never_last(cli):
    cli("run", "phases", "--world", "virtual")
    own = home.find_run("last")
    with home.part_of("grid"):
        cli("run", "phases", "--world", "virtual")
    assert home.find_run("last") == own
    assert [row["run"] for row in cli("runs", "--json").json] == [own.name]
    assert len(cli("runs", "--json", "--all").json) == 2
    assert "without 1 cell of campaigns (--all)" in cli("runs").out


def test_a_negative_limit_is_refused(cli):
    refused(cli("runs", "--limit", "-1"), "--limit")
