"""`weave` against what the QCE25 paper compares: two jobs, three nodes, one QPU, in virtual time.

python -m benchmarks.weave
"""

from __future__ import annotations

from typing import Any

from tests.simulation.two_jobs import ABLATION, CASES, EQUAL_S, PAPER, RIVALS, SLOW, SLURM, measure

from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.worlds.virtual.world import InjectedFaults

WRONG: list[tuple[str, dict[str, float], InjectedFaults | None]] = [
    ("predictions three times too long", {"skew": 3.0}, None),
    ("predictions three times too short", {"skew": 1 / 3}, None),
    ("one quantum task in ten fails", {}, InjectedFaults(seed=1, quantum_rate=0.1)),
]


def main() -> None:
    """Against the others, without each mechanism, and where things go wrong."""
    print(f"wall s / node-s held (of it spare and wasted)\n  {'':34}", "   ".join(f"{case:24}" for case in CASES))
    for title, overheads in (("Slurm's overheads", SLURM), ("the paper's overheads", PAPER)):
        for speculate in (False, True):
            print(f"{title}, {'with' if speculate else 'without'} speculation")
            for name in RIVALS:
                show(name, RIVALS, overheads=overheads, speculate=speculate)
    print("weave without one of its mechanisms, nodes take 5.4 s to come")
    for name in ABLATION:
        show(name, ABLATION, overheads=SLOW)
    print("three equal clusterings")
    for name in RIVALS:
        show(name, RIVALS, clusterings_s=EQUAL_S)
    for title, options, faults in WRONG:
        print(title)
        for name in RIVALS:
            show(name, RIVALS, options if name == "weave" else {}, faults=faults)


def show(
    name: str, among: dict[str, tuple[str, dict[str, float]]], options: dict[str, float] | None = None, **more: Any
) -> None:
    """One line: the three cases."""
    strategy, usual = among[name]
    cells = [
        measure(strategy, options={**usual, **(options or {})}, lanes=lanes, **parameters, **more)
        for parameters, lanes in CASES.values()
    ]
    texts = [f"{cell.wall_s:8.1f} / {cell.node_s:6.0f} ({cell.wasted_node_s:3.0f})" for cell in cells]
    print(f"  {name:34}", "   ".join(texts))


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
