"""The environment in which Slurm's programs and the launchers of ranks are called."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from qloom.mpi import supervisor
from qloom.mpi.launch import mpiexec, srun
from qloom.slurm.commands import LAUNCHER_PREFIXES, clean_environment, client_environment


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "PMI_RANK", "HYDRA_X", "MPI_LOCALNRANKS", supervisor.SUPERVISED])
def test_nothing_of_an_outer_launcher_is_passed_on(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    assert name.startswith(LAUNCHER_PREFIXES)
    for environment in (clean_environment(), client_environment(), mpiexec(2).environment):
        assert name not in environment
        assert environment["SLURM_CONF"] == "/etc/slurm.conf"


@pytest.mark.parametrize("find", [clean_environment, client_environment, lambda: srun(2, ["c1"], "7").environment])
def test_the_slurm_in_path_comes_before_the_directory_of_python(monkeypatch, find):
    """With /usr/bin/python3 another Slurm than the one in /usr/bin was not to be had."""
    monkeypatch.setenv("PATH", "/opt/slurm/bin:/usr/bin")
    assert find()["PATH"].split(os.pathsep) == ["/opt/slurm/bin", "/usr/bin", str(Path(sys.executable).parent)]


def test_ranks_of_this_machine_are_started_by_the_mpiexec_of_our_python(monkeypatch, tmp_path):
    for folder in ("venv", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mpiexec").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:/usr/bin")
    launch = mpiexec(2)
    assert launch.words[0] == str(tmp_path / "venv" / "mpiexec")
    assert launch.environment["PATH"].split(os.pathsep)[0] == str(tmp_path / "venv")
