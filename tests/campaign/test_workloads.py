"""Cells that are a cluster under load: run once, kept, told apart by their seed, and the same again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.errors import InputError
from qloom.lab.campaign.charts import drawing_of
from qloom.lab.campaign.execute import carry_out, verify
from qloom.lab.campaign.page import page_of
from qloom.lab.campaign.rows import read_results, rows_of
from qloom.lab.campaign.store import CampaignRun

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
    store = carry_out(CampaignRun("small", RAW), quiet)
    rows = {(row["load"], row["strategy"]): row for row in rows_of(read_results(store))}
    assert list(rows) == [(load, strategy) for load in ("0.5", "0.9") for strategy in ("offload", "workflow")]
    assert rows["0.9", "offload"]["rigid_wait_s"] > rows["0.5", "offload"]["rigid_wait_s"]
    assert all(row["hybrid_turnaround_s_sd"] > 0 for row in rows.values()), "repeats have other jobs"
    runs = store.done()
    assert carry_out(CampaignRun("small", RAW), quiet).done() == runs, "what is done is not run again"
    assert verify(store, quiet) == (8, 0, [])


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"load": 0}, "the load factor must be above 0, not 0"),
        ({"mix": "magic"}, "'magic' is not part of a mix"),
        ({"size": 3}, "workload: size"),
        ({"policy": "nope"}, "unknown policy 'nope'"),
        ({"arrivals": "nope"}, "unknown arrivals 'nope'"),
        ({"arrivals": "closed", "load": 0.5}, "users of a closed loop make the load"),
        ({"arrivals": "closed"}, "has no figure harm_s"),
        ({"hybrid": 0}, "has no figure hybrid_turnaround_s"),
        ({"hybrid": 0.2, "jobs": 2}, "has no figure hybrid_turnaround_s"),
        ({"hybrid": 1}, "has no figure rigid_wait_s"),
    ],
)
def test_a_wrong_workload_is_refused_before_anything_runs(workload, message, tmp_path):
    """The wrong one is that of the last cell."""
    later = {"first": {"workload": {"jobs": 60}}, "last": {"workload": workload}}
    refuse({**RAW, "base": {"nodes": 16}, "matrix": {"which": later}}, message, tmp_path)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"program": "phases"}, "program means nothing beside a workload"),
        ({"parameters": {"quantum_s": 3}}, "parameters means nothing beside a workload"),
        ({"jobs": 3}, "jobs means nothing beside a workload (workload = { jobs = ... })"),
        ({"arrivals": [0.0, 1.0]}, "arrivals means nothing beside a workload"),
        ({"engine": "streamflow"}, "engine means nothing beside a workload"),
        ({"job_nodes": 2}, "job_nodes means nothing beside a workload"),
        ({"shots": 100}, "shots means nothing beside a workload"),
        ({"nodes": 1}, "a workload needs at least 2 nodes"),
        ({"strategy": "offload,vqpu"}, "unknown strategy 'offload,vqpu'"),
    ],
)
def test_what_means_nothing_beside_a_workload_is_refused(setting, message, tmp_path):
    refuse({**RAW, "base": {**RAW["base"], **setting}, "matrix": {"seed": {"one": {}}}}, message, tmp_path)


@pytest.mark.parametrize(
    ("base", "more", "message"),
    [
        ({"workload": {"jobs": 60}}, {"figures": ["wall_s"]}, "strategy offload has no figure wall_s"),
        ({}, {"figures": ["harm_s"]}, "strategy offload has no figure harm_s"),
        ({"workload": {"jobs": 60}}, {"map": ["nodes", "shares"]}, "has no figure cost_node_s"),
    ],
)
def test_a_figure_that_a_cell_does_not_have_is_refused_before_anything_runs(base, more, message, tmp_path):
    matrix = {"nodes": [4, 8], "shares": [1, 2], "strategy": ["offload"]}
    refuse({"title": "x", "base": base, "matrix": matrix, **more}, message, tmp_path)


def refuse(raw: dict[str, object], message: str, home: Path) -> None:
    with pytest.raises(InputError) as refused:
        carry_out(CampaignRun("wrong", raw), quiet)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (home / "runs").exists()


def small(**workload: object) -> dict[str, object]:
    base = {"nodes": 16, "workload": {"jobs": 40, "hybrid": 0.3, **workload}}
    return {"title": "x", "base": base, "matrix": {"strategy": ["offload"]}}


def test_a_campaign_of_workloads_has_their_figures_unless_it_names_others():
    (row,) = rows_of(read_results(carry_out(CampaignRun("usual", small()), quiet)))
    assert row["hybrid_turnaround_s"] > 0
    assert "wall_s" not in row


def test_a_report_has_no_figure_of_jobs_that_are_not_there():
    raw = {**small(hybrid=0), "figures": ["rigid_wait_s"]}
    (row,) = json.loads(
        json.dumps(rows_of(read_results(carry_out(CampaignRun("rigid", raw), quiet))), allow_nan=False)
    )
    assert not [name for name in row if name.startswith(("hybrid", "harm"))]


def test_the_run_of_a_workload_shows_its_figures_and_is_not_resumed_or_drawn(tmp_path):
    (row,) = rows_of(read_results(carry_out(CampaignRun("usual", small()), quiet)))
    (run,) = row["runs"]

    def told(*words: str) -> Result:
        return CliRunner().invoke(app, [*words])

    shown = told("show", run)
    assert re.search(rf"hybrid turnaround s +{row['hybrid_turnaround_s']:.1f}\b", shown.output)
    assert re.search(rf"nodes used +{row['node_use']:.1%}", shown.output)
    figures = json.loads(told("show", run, "--json").output)
    assert (figures["jobs"], figures["rigid_wait_s"]) == (40, row["rigid_wait_s"])
    assert f"rigid_wait_s={row['rigid_wait_s']}" in told("show", run, "--quiet").output
    picture = tmp_path / "timeline.svg"
    for words in (["resume", run], ["timeline", run, "-o", str(picture)]):
        refused = told(*words)
        assert isinstance(refused.exception, InputError)
        assert f"{run} is a workload of a campaign" in str(refused.exception)
        assert "\n" not in str(refused.exception)
    assert not picture.exists()


def test_a_report_as_a_page_draws_no_nodes_over_time():
    results = read_results(carry_out(CampaignRun("usual", small()), quiet))
    page = page_of(results)
    assert "Nodes over time" not in page
    assert page.index("<h2>Strategies</h2>") < page.index("</body>")
    assert page.count("</html>") == 1
    with pytest.raises(InputError, match="no nodes over time are kept"):
        drawing_of(results, "nodes", "svg")
