"""The figures of the papers, as the command line prints them."""

from __future__ import annotations

import pytest

from tests.unit.cli.typed import EVERY_STRATEGY, ROW, shell, write


def test_what_each_strategy_holds():
    said = shell("compare", "phases", "--world", "virtual", "--json")
    assert said.code == 0
    assert said.err == ""
    rows = {row["strategy"]: row for row in said.json}
    assert tuple(rows) == EVERY_STRATEGY
    less = {"malleable": 162.0, "workflow": 114.0, "weave": 54.6, "pertask": 54.0}
    node_s = {**dict.fromkeys(EVERY_STRATEGY, 301.2), **less}
    for strategy, row in rows.items():
        assert not [name for name in ROW if name not in row]
        assert (row["world"], row["jobs"]) == ("virtual", 1)
        expected = {
            "wall_s": 100.4,
            "node_s_held": node_s[strategy],
            "node_s_busy": 54.0,
            "qpu_s_held": 100.4 if strategy == "coschedule" else 48.0,
            "qpu_s_busy": 48.0,
            "vqpu_s_held": {"vqpu": 100.4, "weave": 48.0, "pertask": 48.0}.get(strategy, 0.0),
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=0.005), strategy


def test_doubling_the_quantum_time_adds_it_to_every_wall(cli):
    rows = [
        cli("compare", "phases", "--world", "virtual", "--json", "--set", f"quantum_s={seconds}").json
        for seconds in (12, 24)
    ]
    for once, twice in zip(*rows, strict=True):
        assert twice["wall_s"] - once["wall_s"] == pytest.approx(48.0), once["strategy"]


def test_combinations_of_holds(cli):
    said = cli("compare", "phases", "--world", "virtual", "--json", "--strategies", "malleable+share, offload+whole")
    malleable, offload = said.json
    assert malleable["strategy"] == "malleable+share"
    assert malleable["vqpu_s_held"] == pytest.approx(100.4)
    assert offload["qpu_s_held"] == pytest.approx(100.4)


SLOW_TO_IMPORT = """
    import time
    time.sleep(1.0)

    def trivial():
        return 1
"""
COMPUTES = """
    import time, heavy, qloom

    async def program(job):
        time.sleep(0.3)
        await job.classical(qloom.call(heavy.trivial))
        time.sleep(0.3)
        await job.quantum(qloom.delay(0.1))
        time.sleep(0.3)
"""


@pytest.mark.parametrize("strategy", ["offload", "workflow"])
def test_wall_time_has_what_the_program_computes_and_busy_time_has_no_imports(strategy):
    write("heavy.py", SLOW_TO_IMPORT)
    said = shell("run", write("computes.py", COMPUTES), "--strategy", strategy, "--json")
    assert said.json["wall_s"] >= 0.3 + 1.0 + 0.3 + 0.1 + 0.3
    assert said.json["node_s_held"] >= 1.0
    assert said.json["node_s_busy"] < 1.0, "the import alone takes a second"
