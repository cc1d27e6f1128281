"""How well virtual time foretells the local world, or Slurm: two jobs of `phases` on three nodes, in both worlds.

    python -m benchmarks.agreement slurm            # on a testbed that this starts and ends
    python -m benchmarks.agreement local
    python -m benchmarks.agreement slurm --repeats 3 --iterations 4 --strategies workflow,weave
    python -m benchmarks.agreement slurm --overheads FILE     # as `qloom measure --world slurm -o FILE` wrote it

First the overheads of the world are measured, as `qloom measure` does; virtual time is given these and nothing from
the runs that it is compared with. Several processes with some strategies each take one measurement by `--overheads`:
while they all start, none of them could measure. Then each strategy runs the default program some times over. Aim:
the medians of wall time and of node-seconds held within 5 %; exits with 1 if one is not. Run it on a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import qloom
from qloom.journal.history import read_history
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.site import Overheads, Site
from qloom.strategies import STRATEGIES
from qloom.testbed import Testbed, TestbedSettings
from qloom.views.accounting import account
from qloom.worlds import world_entry

AIM = 0.05
JOBS, NODES = 2, 3


class Taken(NamedTuple):
    """What the jobs of one run took and held."""

    wall_s: float
    node_s: float


@dataclass
class Compared:
    """One strategy: virtual time beside what happened."""

    strategy: str
    virtual: Taken
    real: list[Taken]

    @property
    def off(self) -> list[float]:
        """How far the median is from virtual time, in parts of it: wall time, node-seconds."""
        columns = zip(*self.real, strict=True)
        return [
            statistics.median(column) / foretold - 1 for column, foretold in zip(columns, self.virtual, strict=True)
        ]

    def row(self) -> str:
        """A row of the table: median and range of what happened, virtual time, and the difference."""
        cells = [self.strategy]
        for column, foretold, off in zip(zip(*self.real, strict=True), self.virtual, self.off, strict=True):
            spread = f"{statistics.median(column):.1f} ({min(column):.1f} to {max(column):.1f})"
            cells += [spread, f"{foretold:.1f}", f"{100 * off:+.1f} %"]
        return f"| {' | '.join(cells)} |"


def one(strategy: str, world: str, site: Site, iterations: int) -> Taken:
    """Run two jobs at once."""
    parameters = {"iterations": iterations}
    outcome = qloom.run("phases", strategy=strategy, world=world, site=site, jobs=JOBS, parameters=parameters)
    if outcome.errors:
        raise outcome.errors[0]
    figures = account(read_history(outcome.events))
    return Taken(figures.wall_s, figures.node_s_held)


@contextmanager
def prepared(world: str) -> Iterator[None]:
    """A place for the journals, and a testbed if the world is Slurm."""
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="qloom-benchmark-"))
        if world == "slurm":
            name = f"bench-agreement-{os.getpid()}"
            testbed = stack.enter_context(Testbed.up(name, TestbedSettings(), attached=True))
            os.environ.update(testbed.environment)
            os.environ.pop("QLOOM_BROKER", None)  # runs have a queue of their own
        os.environ["QLOOM_HOME"] = home
        yield


def compare(world: str, site: Site, strategies: list[str], iterations: int, repeats: int) -> list[Compared]:
    """Run everything, strategies in turn within each repeat, so that a disturbance hits one run of each."""
    compared = [Compared(name, one(name, "virtual", site, iterations), []) for name in strategies]
    left_s = repeats * sum(found.virtual.wall_s for found in compared)
    for repeat in range(1, repeats + 1):
        for found in compared:
            say(f"about {left_s / 60:.0f} min left; repeat {repeat} of {repeats}, {found.strategy}")
            found.real.append(one(found.strategy, world, site, iterations))
            left_s -= found.virtual.wall_s
    return compared


def measured(world: str, file: Path | None) -> Overheads:
    """The overheads of a world: measured now, or read from a file of `qloom measure`."""
    if file is not None:
        return Overheads(**tomllib.loads(file.read_text()))
    say("measuring overheads")
    return world_entry(world).measure(Site(nodes=NODES), "qloom.programs.phases")


def say(text: str) -> None:
    """Progress goes to standard error, so that the table can be kept."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=["local", "slurm"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=4, help="of the program, whose default is 4")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--overheads", type=Path, help="measured before, by `qloom measure`")
    asked = parser.parse_args()
    began = os.getloadavg()[0]
    with prepared(asked.world):
        overheads = measured(asked.world, asked.overheads)
        site = replace(Site(nodes=NODES), overheads=overheads)
        compared = compare(asked.world, site, asked.strategies.split(","), asked.iterations, asked.repeats)
    print(
        f"{JOBS} jobs on {NODES} nodes, {asked.iterations} iterations, medians of {asked.repeats} (and their range)."
    )
    known = ", ".join(f"{name} {value:g}" for name, value in vars(overheads).items() if value)
    print(f"Overheads measured before: {known}. Load average {began:.1f} before, {os.getloadavg()[0]:.1f} after.\n")
    print("| strategy | wall s | virtual | off | node-s held | virtual | off |\n|---|---|---|---|---|---|---|")
    for found in compared:
        print(found.row())
    within = sum(all(abs(off) <= AIM for off in found.off) for found in compared)
    print(f"\n{within} of {len(compared)} within {100 * AIM:.0f} %.\n\n{as_list(circumstances())}", end="")
    sys.exit(0 if within == len(compared) else 1)


if __name__ == "__main__":
    main()
