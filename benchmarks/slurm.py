"""What qloom adds to Slurm: overhead per phase of each strategy over bare `srun`, on one testbed in one run.

    python -m benchmarks.slurm

A testbed of three nodes is brought up for it. Each strategy runs the same loop of short phases; what is left of its
wall time after the phases themselves, divided by their number, stands beside a bare `srun true` on the same nodes.
Calls to Slurm's programs are counted and told for an hour of wall time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from typing import Any

import qloom
from qloom.journal.history import read_history
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.site import Site
from qloom.slurm.client import Client
from qloom.strategies import STRATEGIES
from qloom.testbed import Testbed, TestbedSettings
from qloom.views.accounting import account
from qloom.worlds.slurm import world as slurm_world
from qloom.worlds.slurm.entry import measure

ITERATIONS = 5
SECONDS = {"classical_s": [0.5, 0.5, 0.5], "score_s": 0.5, "quantum_s": 0.5}
PHASES = 3 * ITERATIONS
ROUNDS = 9


class CountingClient(Client):
    """Remembers every client, so that their calls can be added up."""

    made: list[Client] = []  # noqa: RUF012

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.made.append(self)


def bare_srun() -> float:
    """Seconds of an `srun` that asks for an allocation, runs nothing in it and gives it back."""
    taken = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        subprocess.run(["srun", "--nodes=1", "--exclusive", "true"], check=True, stderr=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began_s)
    return statistics.median(taken)


def one(strategy: str) -> tuple[float, float, int]:
    """Wall time, what its phases take at least, and calls to Slurm."""
    CountingClient.made.clear()
    outcome = qloom.run(
        "phases",
        strategy=strategy,
        world="slurm",
        parameters={"iterations": ITERATIONS, **SECONDS},
        site=Site(nodes=3),
    )
    assert not outcome.errors, outcome.errors
    wall_s = account(read_history(outcome.events)).wall_s
    return wall_s, 0.5 * PHASES, sum(client.calls for client in CountingClient.made)


def main() -> None:
    """Print one line for each strategy, then what single steps cost."""
    setattr(slurm_world, "Client", CountingClient)  # noqa: B010  mypy: a class is no variable
    with (
        tempfile.TemporaryDirectory() as home,
        Testbed.up("bench-slurm", TestbedSettings(), attached=True) as testbed,
    ):
        os.environ.update(testbed.environment)
        os.environ.pop("QLOOM_BROKER", None)  # runs have a queue of their own
        os.environ.pop("QLOOM_BROKER", None)
        os.environ["QLOOM_HOME"] = home
        srun_s = bare_srun()
        print(f"bare srun                 {srun_s:6.3f} s")
        print("strategy     over the phases   over bare srun   calls an hour")
        for strategy in STRATEGIES:
            wall_s, least_s, calls = one(strategy)
            phase_s = (wall_s - least_s) / PHASES
            over = f"{phase_s:8.3f} s a phase   {phase_s - srun_s:+8.3f} s"
            print(f"{strategy:<12} {over}   {3600 * calls / wall_s:10.0f}")
        costs = measure(Site(nodes=3), "qloom.programs.phases")
        ready_s = costs.grow_s + costs.worker_start_s + costs.shrink_s
        print(f"grow, workers ready, shrink {ready_s:6.3f} s (aim: at most 1 s)")
        print(f"a task on a held node     {1000 * costs.task_s:6.2f} ms (aim: at most 50 ms)")


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
