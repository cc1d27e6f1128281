"""A run that is done, replayed under other conditions: the answer is that of the virtual world itself."""

from __future__ import annotations

import json
import sys

import pytest

import qloom
from qloom.dashboard.replay import change_from
from qloom.dashboard.replay import main as replay_main
from qloom.errors import InputError
from qloom.journal import home
from qloom.journal.history import read_history
from qloom.lab.advisor.whatif import Change, RecordedRun
from qloom.views.accounting import account

PLAN = {"world": "virtual", "jobs": 2, "parameters": {"iterations": 2}}


@pytest.fixture
def recorded():
    return RecordedRun(qloom.run("phases", strategy="malleable", **PLAN).directory)


def test_unchanged_it_is_as_it_was(recorded):
    was = account(read_history(recorded._events))
    again = recorded.replay(Change())
    assert again.figures["node_s_held"] == pytest.approx(was.node_s_held, abs=1e-3)
    assert again.figures["turnaround_s"] == pytest.approx(was.turnaround_s, abs=1e-3)


@pytest.mark.parametrize("strategy", ["coschedule", "weave", "workflow"])
def test_another_strategy_costs_what_a_run_under_it_costs(recorded, strategy):
    tried = recorded.replay(Change(strategy=strategy)).figures
    real = account(read_history(qloom.run("phases", strategy=strategy, in_memory=True, **PLAN).events))
    assert tried["node_s_held"] == pytest.approx(real.node_s_held, rel=0.01)
    assert tried["turnaround_s"] == pytest.approx(real.turnaround_s, rel=0.01)


def test_each_condition_counts(recorded):
    as_was = recorded.replay(Change()).figures
    slower = recorded.replay(Change(quantum=10.0)).figures
    assert slower["qpu_s_busy"] == pytest.approx(10 * as_was["qpu_s_busy"])
    crowded = recorded.replay(Change(wait_s=100.0)).figures
    assert crowded["turnaround_s"] > as_was["turnaround_s"] + 99
    assert recorded.replay(Change(jobs=4)).figures["node_s_busy"] == pytest.approx(2 * as_was["node_s_busy"])
    wide = recorded.replay(Change(nodes=6))
    assert wide.nodes == 6
    assert wide.figures["turnaround_s"] <= as_was["turnaround_s"]
    rows = recorded.strategies(Change())
    assert [row["cost_node_s"] for row in rows] == sorted(row["cost_node_s"] for row in rows)
    assert len(rows) >= 7


@pytest.mark.parametrize(
    "content", [{"nodes": "many"}, {"nodes": 0}, {"jobs": -1}, {"wait_s": 1e9}, {"strategy": "x"}]
)
def test_what_no_run_can_be_is_refused(recorded, content):
    with pytest.raises(InputError):
        recorded.replay(change_from(content))


def test_only_a_whole_run_of_an_unchanged_program_is_replayed(tmp_path, monkeypatch, capsys):
    program = tmp_path / "mine.py"
    program.write_text("async def program(job):\n    print('noise')\n    return 1\n")
    run = qloom.run(str(program), world="virtual").directory
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["replay", run.name])
    monkeypatch.setattr("json.load", lambda file: {})
    replay_main()
    assert json.loads(capsys.readouterr().out)["as_was"]["strategy"] == "offload"
    program.write_text("async def program(job):\n    return 2\n")
    replay_main()
    assert "has changed since" in json.loads(capsys.readouterr().out)["error"]
    unfinished = home.new_run()
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (unfinished / "journal.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(InputError, match="is not done"):
        RecordedRun(unfinished)
