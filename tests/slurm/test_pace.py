"""A run on real Slurm calls its programs no more often than the site allows: counted where they are called."""

from __future__ import annotations

import os
import shutil
import time

import pytest

import qloom
from qloom.model import call
from qloom.site import Site, Slurm
from qloom.slurm import client
from qloom.slurm.commands import PROGRAMS
from tests.journals import as_lines
from tests.mpi.ranks import write

PER_S = 10.0


@pytest.fixture
def counted(slurm_env, tmp_path, monkeypatch):
    """Slurm's programs, which note when they are called."""
    log = tmp_path / "calls"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        script = f'#!/bin/sh\ndate "+%s.%N {name}" >> {log}\nexec {shutil.which(name)} "$@"\n'
        write(programs / name, script).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    return lambda: [line.split() for line in log.read_text().splitlines()]


async def impatient(job):
    """A phase after the other, each with an allocation of its own."""
    return [(await job.classical(call(len, "x" * number)))[0] for number in range(4)]


@pytest.mark.slow
def test_a_run_that_asks_all_the_time_is_slowed_down_and_says_so(counted, monkeypatch):
    """However fast the machine is: three jobs ask in the same moment, and only one call may be made at once."""
    monkeypatch.setattr(client, "BURST_S", 0.0)
    site = Site(slurm=Slurm(most_calls_per_s=PER_S))
    began_s = time.monotonic()
    outcome = qloom.run(impatient, world="slurm", strategy="workflow", jobs=3, site=site)
    seconds = time.monotonic() - began_s
    assert (outcome.errors, outcome.results) == ([], [[0, 1, 2, 3]] * 3)
    assert [event["event"] for event in as_lines(outcome.events)].count("slurm_throttled") == 1
    (count,) = [event["count"] for event in as_lines(outcome.events) if event["event"] == "slurm_calls"]
    assert seconds >= (1 - client.EARLY) * (count - 1) / PER_S
    ended = sum(event.event == "released" for event in outcome.events)  # by what held them, and not by a program
    calls = counted()
    before = calls[: len(calls) - (count - ended)]  # the site was asked what it has
    assert len(calls) >= count - ended > 3 * 4
    assert {name for _, name in before} <= {"scontrol", "sinfo", "squeue"}, "all others are counted"
