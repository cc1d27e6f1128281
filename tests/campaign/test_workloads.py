"""Cells that are a cluster under load: run once, kept, told apart by their seed, and the same again."""

from __future__ import annotations

import pytest

from qloom.campaign.execute import carry_out, verify
from qloom.campaign.rows import read_results, rows_of
from qloom.campaign.store import Asked
from qloom.errors import InputError

RAW = {
    "title": "a small cluster under load",
    "figures": ["hybrid_turnaround_s", "rigid_wait_s", "harm_s"],
    "repeats": 2,
    "base": {"nodes": 16, "workload": {"jobs": 60, "hybrid": 0.3}},
    "matrix": {
        "strategy": ["offload", "workflow"],
        "load": {"0.5": {"workload": {"load": 0.5}}, "0.9": {"workload": {"load": 0.9}}},
    },
}


def quiet(*_: object) -> None:
    pass


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))


def test_a_workload_is_a_cell_like_any_other():
    store = carry_out(Asked("small", RAW), quiet)
    rows = {(row["load"], row["strategy"]): row for row in rows_of(read_results(store))}
    assert list(rows) == [(load, strategy) for load in ("0.5", "0.9") for strategy in ("offload", "workflow")]
    assert rows["0.9", "offload"]["rigid_wait_s"] > rows["0.5", "offload"]["rigid_wait_s"]
    assert all(row["hybrid_turnaround_s_sd"] > 0 for row in rows.values()), "repeats have other jobs"
    runs = store.done()
    assert carry_out(Asked("small", RAW), quiet).done() == runs, "what is done is not run again"
    assert verify(store, quiet) == (8, 0, [])


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"load": 0}, "the load factor must be above 0, not 0"),
        ({"mix": "magic"}, "'magic' is no part of a mix"),
        ({"size": 3}, "workload: size"),
    ],
)
def test_a_wrong_workload_is_refused_before_anything_runs(workload, message, tmp_path):
    raw = {**RAW, "base": {"nodes": 16, "workload": workload}, "matrix": {"strategy": ["offload"]}}
    with pytest.raises(InputError) as refused:
        carry_out(Asked("wrong", raw), quiet)
    assert message in str(refused.value)
    assert not (tmp_path / "runs").exists()
