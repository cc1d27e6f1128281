"""What a report says: intervals, paired differences, published figures, ratios, pictures."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pytest
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.lab.campaign import formats
from qloom.lab.campaign.cells import expand
from qloom.lab.campaign.charts import colours_of, drawing_of
from qloom.lab.campaign.figures import spread_of
from qloom.lab.campaign.map import winners_of
from qloom.lab.campaign.page import page_of
from qloom.lab.campaign.plans import Conditions, parse_scale, plan_for
from qloom.lab.campaign.read import read_raw
from qloom.lab.campaign.rows import differences_of, rows_of
from qloom.lab.campaign.store import CampaignRun
from qloom.strategies import STRATEGIES
from tests.campaign.helpers import SMALL, results, write

MAP = """
title = "A small map"
map = ["classical", "quantum_s"]
figures = ["cost_node_s"]

[base]
overheads = { submit_s = 60.0, grow_s = 4.0 }
parameters = { score_s = 0 }

[matrix]
"parameters.quantum_s" = [1, 10000]
strategy = ["vqpu", "workflow"]

[matrix.classical]
30 = { parameters = { classical_s = [30, 30, 30] } }
1000 = { parameters = { classical_s = [1000, 1000, 1000] } }
"""


def test_intervals_are_those_of_student():
    found = spread_of([10.0, 12.0, 14.0])
    assert (found.mean, found.sd, found.n) == (12.0, 2.0, 3)
    assert found.ci95 == pytest.approx(4.303 * 2 / math.sqrt(3))
    assert spread_of([5.0]).ci95 == 0.0


def test_strategies_meet_the_same_random_numbers(tmp_path):
    found = results(write(tmp_path))
    for one in found.results:
        for other in found.results:
            if one.cell.axes["jobs"] == other.cell.axes["jobs"]:
                busy = [[figures["node_s_busy"] for figures in each.figures] for each in (one, other)]
                assert busy[0] == pytest.approx(busy[1])
    single = next(row for row in rows_of(found) if row["jobs"] == 1 and row["strategy"] == "malleable")
    paired = next(row for row in differences_of(found) if row["jobs"] == 1)
    assert single["wall_s_ci95"] > 0.1
    assert paired["wall_s_difference_ci95"] < 0.1 * single["wall_s_ci95"], "chance is the same on both sides"


def test_every_format_has_every_cell(tmp_path):
    found = results(write(tmp_path))
    rows = list(csv.DictReader(io.StringIO(formats.as_csv(found))))
    assert [(row["jobs"], row["strategy"]) for row in rows] == [
        ("1", "offload"),
        ("1", "malleable"),
        ("2", "offload"),
        ("2", "malleable"),
    ]
    report = json.loads(formats.as_json(found))
    assert len(report["rows"]) == 4
    assert report["manifest"]["seeds"] == [1, 1001, 2001]
    assert {"qloom", "lock_sha256", "seeds", "calibration", "host", "quirks"} <= set(report["manifest"])
    assert formats.as_markdown(found).count("\n| 2 | malleable |") == 2
    printed = formats.printed(found)
    assert "±" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert "…" not in printed


def test_published_figures_and_quirks_are_told():
    found = results("qce25")
    text = formats.as_markdown(found)
    assert "1019.6" in text
    assert "workflow-bills-used-nodes" in text
    assert "fitted: a call to HyperQueue" in text


def test_the_page_stands_alone(tmp_path):
    page = page_of(results(write(tmp_path, SMALL.replace('"A small campaign"', '"<b>small"'))))
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "&lt;b&gt;small" in page
    assert "Manifest and calibration" in page


def test_every_strategy_has_a_colour_of_its_own(tmp_path):
    strategies = f"strategy = {json.dumps(list(STRATEGIES))}"
    every = SMALL.replace('strategy = ["offload", "malleable"]', strategies).replace("repeats = 3", "repeats = 1")
    colours = colours_of(results(write(tmp_path, every)))
    assert len(set(colours.values())) == len(STRATEGIES)


def test_repeats_of_one_strategy_have_a_page_without_differences(tmp_path):
    text = SMALL.replace('["offload", "malleable"]', '["offload"]')
    page = page_of(results(write(tmp_path, text)))
    assert "Results" in page
    assert "Differences" not in page


def test_scaled_runs_are_compared_by_ratio():
    found = results("qce25", conditions=Conditions(scale=0.2))
    rows = rows_of(found)
    assert all("wall_error" not in row for row in rows)
    double = next(r for r in rows if (r["quantum"], r["mode"], r["strategy"]) == ("2min", "double", "malleable"))
    assert double["published_wall_ratio"] == pytest.approx(1127.65 / 2038.43, abs=1e-6)
    assert 0.5 < double["wall_ratio"] < 0.7
    assert "ratios are to offload" in "\n".join(formats.remarks(found))


def test_scaling_spares_overheads_and_keeps_patience_above_three_growths():
    asked = CampaignRun(*read_raw("qce25"))
    cell = next(cell for cell in expand(asked.campaign(), "qce25") if cell.axes["strategy"] == "malleable")
    full, fifth = (plan_for(cell, 1, 0, Conditions(scale=scale)) for scale in (1.0, parse_scale("1/5")))
    assert fifth.parameters["quantum_s"] == pytest.approx(full.parameters["quantum_s"] / 5)
    assert fifth.parameters["iterations"] == full.parameters["iterations"]
    assert fifth.site.overheads == full.site.overheads
    assert fifth.options["patience_s"] == pytest.approx(3 * full.site.overheads.grow_s)
    measured = plan_for(cell, 1, 0, Conditions(scale=0.2, overheads={"grow_s": 0.1}))
    assert measured.options["patience_s"] == pytest.approx(1.0)
    assert measured.site.overheads.grow_s == 0.1
    real = plan_for(cell, 1, 0, Conditions(world="local", scale=0.2))
    assert real.site.overheads.queue_call_s == 0.0, "a real engine has overheads of its own"


@pytest.mark.slow
def test_the_same_campaign_runs_for_real(tmp_path):
    small = SMALL.replace("repeats = 3", "repeats = 1").replace("jobs = [1, 2]", "jobs = [1]")
    rows = rows_of(results(write(tmp_path, small), conditions=Conditions(world="local", scale=0.05)))
    assert [row["strategy"] for row in rows] == ["offload", "malleable"]
    assert rows[1]["node_ratio"] < 1.0


def test_a_map_says_who_wins_and_is_drawn_the_same_twice(tmp_path):
    found = results(write(tmp_path, MAP))
    winners = {point: winner for point, (winner, _) in winners_of(found).items()}
    assert winners[1000.0, 1.0] == "vqpu"
    assert winners[30.0, 10000.0] == "workflow"
    picture = drawing_of(found, "auto", "svg")
    assert picture == drawing_of(found, "auto", "svg")
    assert b"rule: workflow" in picture


def test_commands_print_and_write(tmp_path):
    text = write(tmp_path)
    runner = CliRunner()
    assert runner.invoke(app, ["campaign", "run", text]).exit_code == 0
    assert "small-" in runner.invoke(app, ["campaign", "list"]).stdout
    for suffix in ("csv", "json", "md", "html", "txt"):
        output = tmp_path / f"report.{suffix}"
        assert runner.invoke(app, ["campaign", "report", "small", "-o", str(output)]).exit_code == 0
        assert "malleable" in output.read_text()
    refused = runner.invoke(app, ["campaign", "report", "small", "-o", str(tmp_path / "report.pdf")])
    assert "has no known suffix" in str(refused.exception)
    assert not (tmp_path / "report.pdf").exists()
    printed = runner.invoke(app, ["campaign", "report", "small", "-f", "md"]).stdout
    assert printed == (tmp_path / "report.md").read_text()
    assert runner.invoke(app, ["campaign", "draw", "-o", str(tmp_path / "bars.png")]).exit_code == 0
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert "12 of 12 journals are the same" in runner.invoke(app, ["campaign", "verify", "small"]).stdout
