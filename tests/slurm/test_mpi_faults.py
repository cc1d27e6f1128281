"""Elastic MPI programs on a Slurm whose controller is down for a while."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.mpi.conftest import HERE
from tests.mpi.ranks import QLOOM, write
from tests.slurm.waiting import kill_controller, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HERE, reason="MPI IS NOT TESTED ON SLURM: pip install 'qloom[mpi]'"),
]
PROGRAM = """
import sys, time
from pathlib import Path
from mpi4py import MPI
from qloom.mpi.elastic import Elastic

run = Elastic()
state = run.register(step=0)
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.05)
while run.nodes < 2:
    run.expand(2)
    time.sleep(0.05)
if MPI.COMM_WORLD.rank == 0:
    print("on", run.nodes)
"""


def test_a_program_grows_when_the_controller_is_back(slurm_env, tmp_path, monkeypatch):
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")  # all nodes are this machine
    program, here, down = write(tmp_path / "program.py", PROGRAM), tmp_path / "here", tmp_path / "down"
    options = ["--world", "slurm", "--nodes", "1-2", "--patience-s", "120", "--slurm", "time_limit=5"]
    place = ["--directory", str(tmp_path / "root")]
    words = [*QLOOM, "mpi", "run", *options, *place, str(program), str(here), str(down)]
    root = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        until(here.exists)
        kill_controller(slurm_env)
        down.touch()
        until(lambda: "requested" in (tmp_path / "root" / "events.jsonl").read_text())
        slurm_env.start("slurmctld")
        assert root.communicate(timeout=120)[0] == "on 2\n"
    finally:
        if root.poll() is None:
            root.kill()
            root.communicate()
    events = [json.loads(line)["event"] for line in (tmp_path / "root" / "events.jsonl").read_text().splitlines()]
    assert "refused" not in events
    until(lambda: slurm_env.run("squeue", "-h") == "")  # what it held was given back
