"""What is said of small mistakes: what is wrong, by its name."""

from __future__ import annotations

import pytest

import qloom
from qloom.cli import main
from qloom.errors import InputError, PayloadError
from qloom.site import Qpu
from tests.unit.cli.typed import refused, write

GROUPS = ("broker", "campaign", "clustering", "export", "load", "mpi", "qpu", "slurm", "testbed")


def test_a_program_without_a_job(cli):
    write("prog.py", "async def program():\n    return 1\n")
    refused(cli("run", "prog.py"), "needs a parameter for the job", "async def program(job, ...)")


def test_an_empty_qubo():
    with pytest.raises(PayloadError, match="the QUBO has no variables"):
        qloom.qubo({})


def test_an_option_that_is_mistyped_in_a_comparison(cli):
    said = cli("compare", "phases", "--strategies", "weave,malleable", "--option", "lingr_s=3")
    refused(said, "none of these strategies has an option 'lingr_s'", "did you mean linger_s?")


def test_an_overheads_file_is_called_so(cli):
    refused(
        cli("run", "phases", "--world", "virtual", "--overheads", "nosuch"), "cannot read the overheads file nosuch"
    )


def test_advice_on_one_strategy(cli):
    said = cli("advise", "phases", "--strategies", "weave", "--samples", 2)
    assert "no other strategy was tried" in " ".join(said.out.split())
    assert "cost the same" not in said.out


def test_an_argument_that_run_does_not_have():
    with pytest.raises(InputError, match=r"run\(\) has no argument 'stratgy' \(did you mean strategy\?\)"):
        qloom.run("phases", stratgy="weave")


def test_reaping_where_slurm_is_gone(cli, monkeypatch, tmp_path):
    for program in ("salloc", "scancel", "scontrol", "sinfo", "squeue", "srun"):
        (tmp_path / program).write_text("#!/bin/sh\nsleep 60\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", "/nosuch")
    refused(cli("slurm", "reap"), "SLURM_CONF names /nosuch, which is not there")


@pytest.mark.parametrize("outages", [((600, 0),), ((5, 5),), ((0, 10), (5, 20)), ((0, None), (5, 6))])
def test_outages_that_end_before_they_begin_are_refused(outages):
    with pytest.raises(InputError, match="in order"):
        Qpu(outages_s=outages)


@pytest.mark.parametrize("group", GROUPS)
def test_no_summary_of_a_command_is_cut(cli, group):
    assert group in main.FILES
    assert "..." not in cli(group, "--help").out.partition("Commands:")[2]
