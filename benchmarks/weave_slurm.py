"""`weave` against the others on a real Slurm and in virtual time: the tables of docs/results/weave-slurm.md.

    python -m benchmarks.weave_slurm DIRECTORY [--scale 1/5] [--repeats 1]

A testbed is brought up and measured. Then it is `qloom campaign run weave --world slurm`, and the same in virtual
time with what was measured. At a fifth of the time one repeat takes about 70 minutes. Runs are kept in the directory:
interrupted, the same command goes on, and further processes with the same directory share the work.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from qloom.cli.running import write_overheads
from qloom.errors import QloomError
from qloom.lab.campaign.execute import carry_out
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.lab.campaign.plans import Conditions, parse_scale
from qloom.lab.campaign.read import read_raw
from qloom.lab.campaign.rows import read_results, rows_of
from qloom.lab.campaign.store import CampaignRun
from qloom.site import Site, read_site
from qloom.testbed import Testbed, TestbedSettings

FIGURES = ("wall_s", "node_s")
Columns = dict[tuple[str, str], dict[str, dict[str, Any]]]  # quantum tasks, spare work -> strategy -> row


def run(repeats: int, conditions: Conditions) -> Columns:
    """Run what is not done yet of the campaign."""
    name, raw = read_raw("weave")
    store = carry_out(CampaignRun(name, {**raw, "repeats": repeats}, conditions), lambda *_: None)
    columns: Columns = {}
    for row in rows_of(read_results(store)):
        columns.setdefault((row["quantum"], row["spare"]), {})[row["strategy"]] = row
    return columns


def show_ratios(columns: Columns, scale: float) -> None:
    """Each figure, its ratio to that of workflow, and what it is at full length; the least of a column is bold."""
    print("| quantum | spare work | strategy | wall s | ratio | at full length | node-s | ratio | at full length |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (quantum, spare), rows in columns.items():
        for strategy, row in rows.items():
            cells = []
            for figure in FIGURES:
                bold = "**" if row[figure] == min(other[figure] for other in rows.values()) else ""
                cells += [f"{bold}{row[figure]:.1f}{bold}", f"{row[figure] / rows['workflow'][figure]:.3f}"]
                cells += [f"{row[figure] / scale:.0f}"]
            print(f"| {quantum} | {spare} | {strategy} | {' | '.join(cells)} |")


def show_agreement(real: Columns, virtual: Columns) -> None:
    """Each figure beside the same in virtual time."""
    print("| quantum | spare work | strategy | wall s, Slurm | virtual | off | node-s, Slurm | virtual | off |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (quantum, spare), rows in real.items():
        for strategy, row in rows.items():
            cells = []
            for figure in FIGURES:
                foretold = virtual[quantum, spare][strategy][figure]
                cells += [f"{row[figure]:.1f}", f"{foretold:.1f}", f"{100 * (row[figure] / foretold - 1):+.1f} %"]
            print(f"| {quantum} | {spare} | {strategy} | {' | '.join(cells)} |")


def main() -> None:
    """Print both tables, and what they were made with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--scale", type=parse_scale, default=0.2)
    parser.add_argument("--repeats", type=int, default=1)
    asked = parser.parse_args()
    directory = asked.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    measured = directory / "overheads.toml"
    with Testbed.up(f"weave-{os.getpid()}", TestbedSettings(), attached=True) as testbed:
        os.environ.update(testbed.environment)
        os.environ.pop("QLOOM_BROKER", None)  # runs have a queue of their own
        os.environ["QLOOM_HOME"] = str(directory)
        if not measured.exists():
            write_overheads("slurm", Site(nodes=3), measured)
        overheads = read_site(measured)
        real = run(asked.repeats, Conditions("slurm", asked.scale, overheads))
    virtual = run(asked.repeats, Conditions("virtual", asked.scale, overheads))
    show_ratios(real, asked.scale)
    print()
    show_agreement(real, virtual)
    print("\noverheads: " + ", ".join(f"{name} {value:g}" for name, value in overheads.items() if value))
    print(f"\n- repeats: {asked.repeats}\n{as_list(circumstances())}", end="")


if __name__ == "__main__":
    try:
        main()
    except QloomError as error:  # another process has the last cells
        sys.exit(str(error))
