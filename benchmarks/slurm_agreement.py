"""How well virtual time foretells Slurm: two jobs of `phases` on three nodes, under each strategy, in both worlds.

    python -m benchmarks.slurm_agreement [--rounds 3] [--iterations 4]

A testbed is brought up and measured (`qloom testbed measure`); virtual time is given what was measured. Then it is
`qloom compare phases --world slurm --jobs 2 --nodes 3`, some times over, beside the same in virtual time. Aim: the
medians of wall time and of node-seconds within 5 %. With four iterations a round takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from dataclasses import replace

import qloom
from qloom.campaign.manifest import as_list, circumstances
from qloom.journal.accounting import Account, account, read_history
from qloom.site import Site
from qloom.strategies import STRATEGIES
from qloom.testbed import Settings, Testbed
from qloom.worlds.slurm.measure import measure

AIM = 0.05


def one(strategy: str, world: str, site: Site, iterations: int) -> Account:
    """What two jobs at once took and held."""
    parameters = {"iterations": iterations}
    outcome = qloom.run("phases", strategy=strategy, world=world, site=site, jobs=2, parameters=parameters)
    assert not outcome.errors, outcome.errors
    return account(read_history(outcome.events))


def compare(strategy: str, site: Site, iterations: int, rounds: int) -> bool:
    """Print one line for a strategy; whether it is within the aim."""
    virtual = one(strategy, "virtual", site, iterations)
    real = [one(strategy, "slurm", site, iterations) for _ in range(rounds)]
    wall_s = statistics.median(figures.wall_s for figures in real)
    node_s = statistics.median(figures.node_s_held for figures in real)
    off = (wall_s / virtual.wall_s - 1, node_s / virtual.node_s_held - 1)
    walls, nodes = f"{wall_s:7.1f} {virtual.wall_s:7.1f}", f"{node_s:7.1f} {virtual.node_s_held:7.1f}"
    print(f"{strategy:<12} {walls} {off[0]:+7.1%}   {nodes} {off[1]:+7.1%}", flush=True)
    return all(abs(share) <= AIM for share in off)


def main() -> None:
    """Print a table, and how many strategies are within the aim."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, Testbed.up("bench-agreement", Settings(), attached=True) as testbed:
        os.environ.update(testbed.environment)
        os.environ.pop("QLOOM_BROKER", None)  # runs have a queue of their own
        os.environ["QLOOM_HOME"] = home
        site = Site(nodes=3)
        site = replace(site, overheads=measure(site, "qloom.programs.phases"))
        print(", ".join(f"{name} {value:g}" for name, value in vars(site.overheads).items() if value))
        print("strategy      wall s virtual     off    node-s virtual     off")
        within = [compare(strategy, site, asked.iterations, asked.rounds) for strategy in STRATEGIES]
    print(f"{sum(within)} of {len(within)} within {AIM:.0%}, medians of {asked.rounds}")


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
