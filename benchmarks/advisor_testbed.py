"""`--strategy auto` on a real Slurm among rigid jobs, against every strategy under the same background.

    python -m benchmarks.advisor_testbed [REPEATS] [--quantum SECONDS] [--load LOAD] [--seed N]

A testbed of six nodes is brought up. Before each run the queue is emptied and the same stream of rigid jobs, drawn
from the seed of the repeat, begins anew; the run starts when that has gone on for a while. The hybrid job may hold
three nodes. Its cost is its wall time from submission, a second of which is worth three node-seconds, and the
node-seconds that it held. The advice itself is asked for before the submission, and told apart.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from dataclasses import replace
from random import Random
from statistics import fmean

from qloom.cli.advise import choose
from qloom.journal.history import read_history
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.programs.load import load_program
from qloom.runs.runner import Plan, execute
from qloom.site import Site
from qloom.strategies import STRATEGIES
from qloom.testbed import Testbed, TestbedSettings
from qloom.views.accounting import account
from qloom.worlds.slurm.entry import measure

NODES, OWN_NODES = 6, 3
WARM_UP_S = 20.0
AUTO = "auto"


class Background:
    """A stream of rigid jobs, the same for the same seed."""

    def __init__(self, testbed: Testbed, load: float, seed: str) -> None:
        self._testbed = testbed
        self._load = load
        self._rng = Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._submit, daemon=True)

    def __enter__(self) -> None:
        self._testbed.run("scancel", "--partition=compute")
        self._thread.start()
        time.sleep(WARM_UP_S)

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()
        self._testbed.run("scancel", "--partition=compute")

    def _submit(self) -> None:
        due_s = time.monotonic()
        while not self._over.is_set():
            nodes, run_s = self._rng.randint(1, 4), self._rng.uniform(3.0, 15.0)
            command = ["sbatch", f"--nodes={nodes}", "--exclusive", "--time=1", "--output=/dev/null"]
            self._testbed.run(*command, "--wrap", f"sleep {run_s:.2f}")
            due_s += self._rng.expovariate(self._load * NODES / (2.5 * 9.0))
            self._over.wait(max(0.0, due_s - time.monotonic()))


def cost_of(plan: Plan, strategy: str) -> tuple[float, str]:
    """Run it; the cost in node-seconds, and what was run."""
    taken = ""
    if strategy == AUTO:
        began_s = time.monotonic()
        plan = choose(plan, shown=False)
        taken = f" = {plan.strategy}, chosen in {time.monotonic() - began_s:.1f} s"
    else:
        plan = replace(plan, strategy=strategy)
    outcome = execute(plan)
    if outcome.errors:
        raise outcome.errors[0]
    figures = account(read_history(outcome.events))
    return OWN_NODES * figures.turnaround_s + figures.node_s_held, taken


def campaign(testbed: Testbed, given: argparse.Namespace) -> dict[str, list[float]]:
    """The cost of each strategy in each repeat."""
    site = Site(nodes=OWN_NODES)
    site = replace(site, overheads=measure(site, "qloom.programs.phases", rounds=2))
    parameters = {"classical_s": [5.0, 5.0, 5.0], "score_s": 1.0, "quantum_s": given.quantum, "iterations": 3}
    plan = Plan(load_program("phases"), parameters, strategy=AUTO, world="slurm", site=site)
    costs: dict[str, list[float]] = {strategy: [] for strategy in (AUTO, *STRATEGIES)}
    for repeat in range(given.repeats):
        for strategy in costs:
            with Background(testbed, given.load, f"{given.seed} {repeat}"):
                cost, taken = cost_of(plan, strategy)
            costs[strategy].append(cost)
            print(f"repeat {repeat + 1}: {strategy}{taken} {cost:.0f}", flush=True)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repeats", type=int, nargs="?", default=3)
    parser.add_argument("--quantum", type=float, default=8.0)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="qloom-advisor-") as home,
        Testbed.up("advisor-benchmark", TestbedSettings(nodes=NODES), attached=True) as testbed,
    ):
        os.environ.update(testbed.environment, QLOOM_HOME=home)
        os.environ.pop("QLOOM_BROKER", None)  # runs have a queue of their own
        costs = campaign(testbed, given)
    means = {strategy: fmean(values) for strategy, values in costs.items()}
    best = min(means[strategy] for strategy in STRATEGIES)
    print("| strategy | mean cost, node-seconds | against the best |\n|---|---|---|")
    for strategy in sorted(means, key=lambda name: means[name]):
        print(f"| {strategy} | {means[strategy]:.0f} | {means[strategy] / best - 1:+.1%} |")


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
