"""`qloom load`, as a user types it."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.errors import InputError

SMALL = ["load", "run", "--jobs", "120", "--nodes", "32"]


def told(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: str) -> str:
    with pytest.raises(InputError) as error:
        CliRunner().invoke(app, list(words), catch_exceptions=False, standalone_mode=False)
    assert error.value.exit_code == 2
    return str(error.value)


def test_a_table_of_one_run_fits_80_columns():
    table = told(*SMALL, "--hybrid", "20%", "--harm")
    for word in ("bounded slowdown", "fairness", "QPUs busy", "harm"):
        assert word in table
    assert max(len(line) for line in table.splitlines()) <= 80


def test_several_loads_and_strategies_make_one_row_each():
    rows = json.loads(
        told(*SMALL, "--hybrid", "20%", "--load", "0.5,0.8", "--strategy", "offload,workflow", "--json")
    )
    assert [(row["load"], row["strategy"]) for row in rows] == [
        (load, strategy) for load in (0.5, 0.8) for strategy in ("offload", "workflow")
    ]
    assert all(row["hybrid"]["jobs"] + row["rigid"]["jobs"] == 108 for row in rows)  # without the warm-up


def test_a_trace_can_be_made_and_run(tmp_path):
    trace, sidecar = str(tmp_path / "t.swf"), str(tmp_path / "t.jsonl")
    made = told("load", "make", trace, "--sidecar", sidecar, "--jobs", "80", "--nodes", "32", "--hybrid", "25%")
    assert "80 jobs, 20 of them hybrid" in made
    results = tmp_path / "results.csv"
    told("load", "run", trace, "--sidecar", sidecar, "--nodes", "32", "--strategy", "vqpu", "--csv", str(results),
         "--swf", str(tmp_path / "results.swf"))  # fmt: skip
    assert len(results.read_text().splitlines()) == 81
    assert sum(",hybrid,vqpu," in line for line in results.read_text().splitlines()) == 20


FOUR = """\
1 0 -1 40 2 -1 -1 2 100 -1 -1 1 1 -1 -1 1 -1 -1
2 10 -1 40 4 -1 -1 4 80 -1 -1 1 1 -1 -1 1 -1 -1
3 20 -1 20 2 -1 -1 2 20 -1 -1 1 1 -1 -1 1 -1 -1
4 30 -1 10 1 -1 -1 1 30 -1 -1 1 1 -1 -1 1 -1 -1
"""


def rows_of(tmp_path, *more: str) -> list[dict[str, str]]:
    """What came of the four jobs of a trace on four nodes."""
    trace, results = tmp_path / "four.swf", tmp_path / "results.csv"
    trace.write_text(FOUR)
    told("load", "run", str(trace), "--nodes", "4", "--warm-up", "0", "--csv", str(results), *more)
    with results.open() as file:
        return sorted(csv.DictReader(file), key=lambda row: int(row["number"]))


@pytest.mark.parametrize(
    ("policy", "starts_s"),
    [("conservative", [0, 50, 20, 40]), ("replan", [0, 40, 20, 80]), ("easy", [0, 40, 20, 80])],
)
def test_conservative_keeps_the_promise_to_a_job_and_replan_does_not(tmp_path, policy, starts_s):
    """When job 4 comes it can have 40 s. Job 1 then ends early, and job 2 wants its place at once."""
    rows = rows_of(tmp_path, "--policy", policy, "--interval-s", "0")
    assert [float(row["start_s"]) for row in rows] == starts_s


@pytest.mark.parametrize(
    ("words", "arrivals_s"),
    [
        ([], [0, 10, 20, 30]),
        (["--arrivals", "trace"], [0, 10, 20, 30]),
        (["--load", "0.5"], pytest.approx([0, 145 / 3, 290 / 3, 145])),
        (["--load", "trace"], [0, 10, 20, 30]),
    ],
    ids=str,
)
def test_a_trace_keeps_its_arrivals(tmp_path, words, arrivals_s):
    assert [float(row["submit_s"]) for row in rows_of(tmp_path, *words)] == arrivals_s


def test_arrivals_of_a_trace_are_replaced_if_asked_for(tmp_path):
    """At the rate of the trace, unless a load is named."""
    drawn_s = [float(row["submit_s"]) for row in rows_of(tmp_path, "--arrivals", "poisson")]
    assert drawn_s != [0, 10, 20, 30]
    half_s = [float(row["submit_s"]) for row in rows_of(tmp_path, "--arrivals", "poisson", "--load", "0.5")]
    assert half_s == pytest.approx([at_s * 145 / 30 for at_s in drawn_s], abs=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arrivals", "trace"], "the model has no arrivals"),
        (["--arrivals", "closed", "--load", "0.5"], "users of a closed loop make the load"),
        (["--load", "trace"], "there is no trace"),
        (["--load", "0"], "the load factor must be above 0, not 0"),
        (["--load", "much"], "--load 'much': not a number"),
        (["--hybrid", "some"], "--hybrid: 'some' is not a share"),
        (["--partition", "gpu"], "'gpu' is not a partition"),
        (["--policy", "nobody"], "unknown policy 'nobody'"),
        (["--mtbf-h", "0"], "failures need positive hours"),
        (["--strategy", "all", "--csv", "x.csv"], "--swf and --csv hold one run"),
        (["--sidecar", "x.jsonl"], "a side-car belongs to a trace"),
        (["nowhere.swf"], "cannot read the trace nowhere.swf"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, message):
    said = refused(*SMALL, *words)
    assert message in said
    assert "\n" not in said
