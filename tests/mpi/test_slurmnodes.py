"""Nodes of an elastic program on Slurm, with stand-ins for Slurm's programs: what is granted is never left behind."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from qloom.errors import InputError, JobError
from qloom.mpi import slurmnodes
from qloom.mpi.slurmnodes import SlurmNodes
from qloom.site import Slurm
from qloom.slurm.tags import own_tag
from tests.mpi.ranks import QLOOM

DOWN = "Unable to contact slurm controller (connect failure)"
GRANTED = 'echo "salloc: Granted job allocation 7" >&2'
RUNS = "echo '7|RUNNING|1|2|c[1-2]|qloom.elastic|comment|None'"
WAIT_S = 30


class Programs:
    """Slurm's programs as shell scripts that log their words; `first` replaces the first calls of one."""

    def __init__(self, directory):
        self._directory = directory
        self.say("salloc", GRANTED)
        self.say("squeue", RUNS)
        for name in ("scancel", "scontrol", "sinfo", "srun"):
            self.say(name, "true")

    def say(self, name, script, first=()):
        file = self._directory / name
        lines = ["#!/bin/sh", f'echo "{name} $*" >> {self._directory}/log']
        for number in range(len(first)):
            mark = f"{self._directory}/{name}.{number}"
            lines.append(f'[ -e {mark} ] || {{ touch {mark}; echo "{name}: error: {first[number]}" >&2; exit 1; }}')
        file.write_text("\n".join([*lines, script]) + "\n")
        file.chmod(0o755)

    def calls(self, name):
        log = self._directory / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    for name in list(os.environ):
        if name.startswith("SLURM"):
            monkeypatch.delenv(name)
    return Programs(directory)


@pytest.fixture
def nodes():
    held = SlurmNodes(Slurm(), own_tag("elastic"))
    yield held
    held.end()


def arrived(nodes):
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        if (came := nodes.arrived()) is not None:
            return came
    raise AssertionError("nothing was granted")


def test_a_grant_that_cannot_be_read_is_given_back(programs, nodes):
    programs.say("squeue", 'echo "squeue: error: what?" >&2; exit 1')
    nodes.begin(2)
    with pytest.raises(JobError, match="what"):
        arrived(nodes)
    assert programs.calls("scancel") == ["7"]


def test_a_grant_that_has_ended_meanwhile_is_no_grant(programs, nodes):
    programs.say("squeue", RUNS.replace("RUNNING", "PREEMPTED"))
    nodes.begin(2)
    with pytest.raises(JobError, match="job 7 was preempted"):
        arrived(nodes)


def test_a_controller_that_is_down_is_asked_again(programs, nodes):
    programs.say("salloc", GRANTED, first=[DOWN])
    programs.say("squeue", RUNS, first=[DOWN])
    programs.say("scancel", "true", first=[DOWN])
    nodes.begin(2)
    assert arrived(nodes) == 2
    nodes.take()
    assert nodes.in_use == 2
    asked = programs.calls("salloc")
    assert len(asked) == 2
    name = next(word for word in asked[0].split() if word.startswith("--job-name="))
    unconfirmed = f"--me --name={name.partition('=')[2]}"  # the controller may have had it
    assert programs.calls("scancel") == [unconfirmed, unconfirmed]
    programs.say("squeue", RUNS, first=[DOWN, DOWN])  # one of them was used up above
    assert nodes.launch(1).words[1] == "--jobid=7"
    nodes.end()
    assert programs.calls("scancel")[2:] == ["7"]


def test_what_cannot_be_given_back_is_told_in_the_end(programs, monkeypatch):
    monkeypatch.setattr(slurmnodes, "PATIENCE_S", 0.2)
    monkeypatch.setattr(slurmnodes, "MOMENT_S", 0.1)
    held = SlurmNodes(Slurm(), own_tag("elastic"))
    held.begin(2)
    arrived(held)
    held.take()
    programs.say("scancel", f'echo "scancel: error: {DOWN}" >&2; exit 1')
    with pytest.raises(JobError, match="job 7 may still be held") as told:
        held.end()
    assert told.value.hint == "qloom slurm reap"
    held.end()


def test_a_request_that_is_withdrawn_leaves_nothing(programs, nodes):
    in_the_same_moment = f"trap '{GRANTED}; exit 0' TERM"
    programs.say("salloc", f"{in_the_same_moment}; scancel waits; while true; do sleep 0.02; done")
    nodes.begin(2)
    until_s = time.monotonic() + WAIT_S
    while not programs.calls("scancel") and time.monotonic() < until_s:
        assert nodes.arrived() is None
    nodes.withdraw()
    assert programs.calls("scancel") == ["waits", "7"]


def test_a_refusal_ends_a_program_that_has_nothing_and_no_other(programs, nodes):
    refused = 'echo "salloc: error: Invalid account" >&2; exit 1'
    programs.say("salloc", refused)
    nodes.begin(2)
    with pytest.raises(InputError, match="Invalid account"):
        arrived(nodes)
    programs.say("salloc", GRANTED)
    nodes.ask(2, 2)
    assert arrived(nodes) == 2
    nodes.take()
    programs.say("salloc", refused)
    nodes.ask(3, 3)
    with pytest.raises(JobError, match="Invalid account") as told:
        arrived(nodes)
    assert not isinstance(told.value, InputError)
    assert nodes.in_use == 2


def test_the_options_of_the_site_apply_to_every_allocation(programs, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text('[slurm]\naccount = "ours"\npartition = "fast"\ntime_limit = "7"\narguments = ["--nice=1"]\n')
    words = [*QLOOM, "mpi", "run", "--world", "slurm", "--nodes", "2", "--directory", str(tmp_path / "elastic")]
    options = ["--site", str(site), "--slurm", "qos=high", "--slurm=--exclusive"]
    done = subprocess.run([*words, *options, "true"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (asked,) = programs.calls("salloc")
    expected = ["--partition=fast", "--account=ours", "--qos=high", "--time=7", "--exclusive"]
    assert [word for word in expected if word not in asked.split()] == []
    assert programs.calls("scancel") == ["7"]
    assert (tmp_path / "elastic").stat().st_mode & 0o777 == 0o700
