"""How long the first task after a grant takes on a real Slurm: a plain program and one that imports Qiskit.

    python -m benchmarks.fast_starts [--iterations 6] [--starts 5]

A testbed is brought up. Cold starts (nothing stays on a released node) and warm ones (`keep_warm_s = 120`) are
measured beside a bare `srun python -c "import ..."` in an allocation that is there already, one after the other. Then
six iterations of a program that imports Qiskit run under all strategies, without and with `keep_warm_s`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from qloom.journal.event import Event
from qloom.journal.events import Granted, TaskEnded, WorkerStarted
from qloom.journal.history import read_history
from qloom.runs.runner import run
from qloom.site import Site, Slurm
from qloom.strategies import STRATEGIES
from qloom.testbed import Testbed, TestbedSettings
from qloom.views.accounting import account

KEEP_WARM_S = 120.0
QISKIT = "from qiskit.circuit.library import efficient_su2"
PROGRAM = """
{imports}
from qloom import delay, task


@task(expected_s=0.01)
def step(angles, number):
    return [angle + number for angle in angles]


async def program(job, iterations=6, quantum_s=0.2):
    angles = [0.0, 0.1]
    for number in range(iterations):
        (angles,) = await job.classical(step(angles, number))
        if quantum_s:
            await job.quantum(delay(quantum_s))
    return angles
"""


def site(keep_warm_s: float) -> Site:
    """The testbed, with or without processes that stay."""
    return Site(nodes=3, slurm=Slurm(keep_warm_s=keep_warm_s))


def first_tasks_s(events: list[Event]) -> list[float]:
    """From each grant to the end of the first task after it."""
    found, granted_us = [], None
    for event in events:
        if isinstance(event, Granted) and event.nodes:
            granted_us = event.at_us
        elif isinstance(event, TaskEnded) and granted_us is not None:
            found.append((event.at_us - granted_us) / 1e6)
            granted_us = None
    return found


def bare_s(imports: str, starts: int) -> float:
    """A step that only imports, in an allocation that is there: the median."""
    words = ["salloc", "-Q", "-N1", "-n1", "-t10", sys.executable, "-c", BARE, imports, str(starts)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return statistics.median(float(line) for line in said.split())


BARE = """
import subprocess, sys, time
for _ in range(int(sys.argv[2])):
    began_s = time.perf_counter()
    subprocess.run(["srun", "--overlap", "-n1", sys.executable, "-c", sys.argv[1]], check=True, capture_output=True)
    print(time.perf_counter() - began_s)
"""


def write(directory: Path, name: str, imports: str) -> str:
    """The program, in a file."""
    path = directory / f"{name}.py"
    path.write_text(PROGRAM.format(imports=imports))
    return str(path)


def show_starts(directory: Path, starts: int) -> None:
    """One allocation for each task: `workflow` takes a node anew for each phase."""
    print("| program | bare srun | cold | ratio | warm | ratio |\n|---|---|---|---|---|---|")
    for name, imports in (("plain", "import json"), ("imports Qiskit", QISKIT)):
        program = write(directory, name.replace(" ", "_"), imports)
        plain_s = bare_s(imports, starts)
        medians = []
        for keep_s in (0.0, KEEP_WARM_S):
            asked = {"iterations": starts + 1, "quantum_s": 0}
            outcome = run(program, world="slurm", strategy="workflow", site=site(keep_s), parameters=asked)
            outcome.result  # noqa: B018  raises if it failed
            medians.append(statistics.median(first_tasks_s(outcome.events)[1:]))
        cells = "".join(f" {each:.2f} s | {each / plain_s:.2f} |" for each in medians)
        print(f"| {name} | {plain_s:.2f} s |{cells}", flush=True)


def show_strategies(directory: Path, iterations: int) -> None:
    """Wall time of a program that imports Qiskit under each strategy, cold and warm."""
    program = write(directory, "loop", QISKIT)
    print(f"\n| {iterations} iterations | cold | to offload | warm | to offload | starts, warm |")
    print("|---|---|---|---|---|---|")
    cold = {strategy: measured(program, strategy, 0.0, iterations) for strategy in STRATEGIES}
    run(program, world="slurm", strategy="offload", site=site(KEEP_WARM_S), parameters={"iterations": 1})
    warm = {strategy: measured(program, strategy, KEEP_WARM_S, iterations) for strategy in STRATEGIES}
    for strategy in STRATEGIES:
        (cold_s, _, _), (warm_s, starts, of) = cold[strategy], warm[strategy]
        print(
            f"| {strategy} | {cold_s:.1f} s | {cold_s / cold['offload'][0]:.1f} | {warm_s:.1f} s | "
            f"{warm_s / warm['offload'][0]:.1f} | {starts} of {of} |",
            flush=True,
        )


def measured(program: str, strategy: str, keep_s: float, iterations: int) -> tuple[float, int, int]:
    """Wall seconds, and how many of the starts of workers on nodes were warm."""
    outcome = run(program, world="slurm", strategy=strategy, site=site(keep_s), parameters={"iterations": iterations})
    outcome.result  # noqa: B018
    starts = [event for event in outcome.events if isinstance(event, WorkerStarted)]
    return account(read_history(outcome.events)).wall_s, sum(event.warm for event in starts), len(starts)


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--starts", type=int, default=5)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        Testbed.up(f"starts-{os.getpid()}", TestbedSettings(broker=False)) as bed,
    ):
        os.environ.update(bed.environment, QLOOM_HOME=f"{name}/home")
        began_s = time.monotonic()
        show_starts(Path(name), asked.starts)
        show_strategies(Path(name), asked.iterations)
        took_s = time.monotonic() - began_s
        print(f"\nload of the machine {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, {took_s:.0f} s")


if __name__ == "__main__":
    main()
