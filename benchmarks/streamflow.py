"""Time per step beyond bare `sbatch`-to-end: StreamFlow's stock Slurm connector, qloom's, and the built-in engine.

    python benchmarks/streamflow.py [--steps 8] [--rounds 3]

A chain of steps that do nothing, one after the other, on one testbed that this starts (and ends) itself. What a step
takes is the time from its request to the next one's, so that neither StreamFlow's start nor qloom's counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path

import qloom
from qloom.campaign.manifest import as_list, circumstances
from qloom.export import Places, flow_of, write_cwl
from qloom.streamflow.environment import find_streamflow, step_environment
from qloom.testbed import Settings, Testbed

PHASE = """[[phase]]
kind = "classical"
name = "step{number}"
[[phase.task]]
command = ["touch", "made{number}"]
outputs = ["made{number}"]
"""
EXECUTING = re.compile(r"^(\S+ \S+) INFO +EXECUTING step /step", re.MULTILINE)


def bare_s(testbed: Testbed, steps: int) -> list[float]:
    """From `sbatch` to the end of the job, looked at all the time."""
    taken = []
    for _ in range(steps):
        began_s = time.monotonic()
        job = testbed.run("sbatch", "--parsable", "--partition=compute", "--output=/dev/null", "--wrap=true").strip()
        while "JobState=COMPLETED" not in testbed.run("scontrol", "show", "-o", "job", job):
            time.sleep(0.005)
        taken.append(time.monotonic() - began_s)
    return taken


def by_streamflow_s(file: Path, folder: Path, stock: bool) -> list[float]:
    """What each step but the last took, by the times at which StreamFlow executes them."""
    write_cwl(folder, flow_of(str(file), {}), Places("slurm", stock=stock))
    command = [str(find_streamflow()), "run", "streamflow.yml", "--outdir", "results"]
    done = subprocess.run(command, cwd=folder, env=step_environment(), capture_output=True, text=True, check=True)
    times = [datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f") for text in EXECUTING.findall(done.stderr + done.stdout)]
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]


def by_qloom_s(file: Path) -> list[float]:
    """The same for the built-in engine, by its journal."""
    outcome = qloom.run(str(file), strategy="workflow", world="slurm")
    assert not outcome.errors, outcome.errors[0]
    times = [event["at_us"] / 1e6 for event in outcome.events if event["event"] == "requested"]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    taken: dict[str, list[float]] = {
        "bare sbatch": [],
        "stock connector": [],
        "qloom-slurm": [],
        "built-in engine": [],
    }
    with (
        tempfile.TemporaryDirectory(prefix="qloom-benchmark-") as temporary,
        Testbed.up(f"bench-streamflow-{os.getpid()}", Settings(), attached=True) as testbed,
    ):
        os.environ |= {**testbed.environment, "QLOOM_HOME": f"{temporary}/home"}
        file = Path(temporary) / "chain.toml"
        file.write_text('name = "chain"\n' + "".join(PHASE.format(number=n) for n in range(given.steps)))
        bare_s(testbed, 1)
        for number in range(given.rounds):  # in turn, so that the machine's other work is shared
            taken["bare sbatch"] += bare_s(testbed, given.steps)
            taken["stock connector"] += by_streamflow_s(file, Path(temporary) / f"stock{number}", True)
            taken["qloom-slurm"] += by_streamflow_s(file, Path(temporary) / f"own{number}", False)
            taken["built-in engine"] += by_qloom_s(file)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    bare = medians["bare sbatch"]
    stock = medians["stock connector"] - bare
    print(f"load {os.getloadavg()[0]:.1f}, {given.rounds} rounds of {given.steps} steps; medians")
    print(f"{'':16} {'step s':>7} {'beyond bare s':>14} {'of stock':>9}")
    for name, median in medians.items():
        beyond = median - bare
        print(f"{name:16} {median:7.2f} {beyond:14.2f} {'' if name == 'bare sbatch' else f'{beyond / stock:9.2f}'}")


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
