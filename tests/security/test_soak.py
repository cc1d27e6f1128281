"""The short form of the soak: a real broker under honest and hostile clients, killed, drained and restarted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_honest_clients_lose_nothing_while_others_attack_and_the_broker_is_killed():
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.25", "--seed", "7", "--no-slurm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", done.stdout, re.MULTILINE))
    assert figures["violations"] == "0"
    assert int(figures["tasks accepted and answered right, once"]) > 0
    assert int(figures["kills"]) > 0
