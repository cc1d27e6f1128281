"""`qloom load`, as a user types it."""

from __future__ import annotations

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
    told("load", "run", trace, "--sidecar", sidecar, "--nodes", "32", "--load", "trace", "--arrivals", "trace",
         "--strategy", "vqpu", "--csv", str(results), "--swf", str(tmp_path / "results.swf"))  # fmt: skip
    assert len(results.read_text().splitlines()) == 81
    assert sum(",hybrid,vqpu," in line for line in results.read_text().splitlines()) == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--load", "0"], "the load factor must be above 0, not 0"),
        (["--load", "much"], "--load 'much': not a number"),
        (["--hybrid", "some"], "--hybrid: 'some' is no share"),
        (["--partition", "gpu"], "'gpu' is no partition"),
        (["--policy", "nobody"], "no policy is called 'nobody'"),
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
