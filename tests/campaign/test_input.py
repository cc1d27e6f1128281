"""Bad input: one clear line, before anything runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.errors import InputError, JobError
from qloom.journal import home
from qloom.lab.campaign.execute import pieces_of
from qloom.lab.campaign.model import FIGURES, QUIRKS, Calibrated, Campaign, Claim, Published, Setting
from qloom.lab.campaign.read import read_raw
from qloom.lab.campaign.store import CampaignRun, CampaignStore
from tests.campaign.helpers import carried_out, write

MATRIX = '[matrix]\nstrategy = ["offload"]\n'
BAD = {
    "matrix is empty": "",
    "axis strategy of the matrix is empty": "[matrix]\nstrategy = []\n",
    "unknown strategy 'offlod'": '[matrix]\nstrategy = ["offlod"]\n',
    "unknown strategy 'magic'": '[matrix.how]\nso = { strategy = "magic" }\n',
    "no QPU technology is called 'abacus'": '[matrix]\ntechnology = ["abacus"]\n',
    "colour is not an axis": '[matrix]\ncolour = ["red"]\n',
    "base.nodez is not a known key": "[base]\nnodez = 3\n" + MATRIX,
    "greater than or equal to 1": "[matrix]\njobs = [0]\n",
    "$wait_s is not a calibrated value": '[base.parameters]\nquantum_s = "$wait_s"\n' + MATRIX,
    "has no parameter 'quantum'": "[base.parameters]\nquantum = 3\n" + MATRIX,
    "strategy offload has no option 'patience_s'": "[base.options.offload]\npatience_s = 3\n" + MATRIX,
    "options for 'workflow+shar', a strategy of no cell (did you mean workflow+share?": (
        '[base.options]\n"workflow+shar" = { per_task = 1 }\n[matrix]\nstrategy = ["offload", "workflow+share"]\n'
    ),
    "options for 'maleable', a strategy of no cell (did you mean malleable?": (
        '[base.options.maleable]\npatience_s = 3\n[matrix]\nstrategy = ["offload", "malleable"]\n'
    ),
    "options for 'malleable', a strategy of no cell (there are offload)": (
        "[base.options.malleable]\npatience_s = 3\n" + MATRIX
    ),
    "strategy workflow+share has no option 'per_tusk' (did you mean per_task?": (
        '[base.options]\n"workflow+share" = { per_tusk = 1 }\n[matrix]\nstrategy = ["workflow+share"]\n'
    ),
    "option patience_s is 5 for malleable and 4 for another strategy of the same run": (
        '[base.options]\n"malleable+share" = { patience_s = 4 }\n[matrix]\nstrategy = ["malleable,malleable+share"]\n'
    ),
    "a job may hold 4 nodes and the cluster has 3": "[base]\njob_nodes = 4\n" + MATRIX,
    "no cell has the baseline's strategy 'split'": 'baseline = "split"\n' + MATRIX,
    "row 1 has 1 values and there are 2 columns": MATRIX
    + '[published]\nsource = "x"\ncolumns = ["strategy", "wall_s"]\nrows = [["offload"]]\n',
    "it has a row for strategy workflow, which fits 0 cells": MATRIX
    + '[published]\nsource = "x"\ncolumns = ["strategy", "wall_s"]\nrows = [["workflow", 3.0]]\n',
    "the published table has a column walls": MATRIX
    + '[published]\nsource = "x"\ncolumns = ["strategy", "walls"]\nrows = [["offload", 3.0]]\n',
    "published wall_s must be a number, not 'long'": MATRIX
    + '[published]\nsource = "x"\ncolumns = ["strategy", "wall_s"]\nrows = [["offload", "long"]]\n',
    "a claim speaks of strategy workflow, which fits 0 cells": MATRIX
    + '[[claims]]\nclaim = "x"\npercent = 1\nfigure = "wall_s"\n'
    + 'of = { strategy = "workflow" }\nthan = { strategy = "offload" }\n',
    "a map needs two axes of numbers": 'map = ["jobs", "strategy"]\n[matrix]\njobs = [1]\nstrategy = ["offload"]\n',
}


@pytest.mark.parametrize(("problem", "text"), BAD.items(), ids=list(BAD))
def test_a_mistake_in_the_file_is_one_line_and_nothing_runs(problem, text, tmp_path):
    with pytest.raises(InputError) as caught:
        carried_out(write(tmp_path, 'title = "x"\n' + text))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert home.run_names() == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "nothing"], "no campaign is called 'nothing'"),
        (["run", "missing.toml"], "cannot read the campaign file"),
        (["run", "qce25", "--scale", "2"], "'2' is not a scale"),
        (["run", "qce25", "--world", "moon"], "unknown world 'moon'"),
        (["run", "qce25", "--calibrate", "doubles"], "cannot be calibrated to 'doubles'"),
        (["run", "split", "--calibrate", "all"], "no published table"),
        (["report", "qce25"], "no campaign 'qce25' that was run"),
        (["verify"], "no campaign yet"),
    ],
)
def test_a_mistake_on_the_command_line(words, problem):
    outcome = CliRunner().invoke(app, ["campaign", *words])
    assert isinstance(outcome.exception, InputError)
    assert problem in str(outcome.exception)
    assert home.run_names() == []


def test_a_file_that_is_no_toml(tmp_path):
    with pytest.raises(InputError, match="is not TOML"):
        read_raw(write(tmp_path, "title = "))


def test_processes_share_a_campaign_and_never_run_a_cell_twice(tmp_path):
    text = write(tmp_path)
    asked = CampaignRun(*read_raw(text))
    cell, repeat, _ = pieces_of(asked)[0]
    CampaignStore(asked.directory).begin(asked, {})
    with CampaignStore(asked.directory).claim(cell.id, repeat) as is_mine:
        assert is_mine
        with pytest.raises(JobError, match=r"1 of \d+ cells are being run by another process"):
            carried_out(text)
    done = CampaignStore(asked.directory).done()
    assert (cell.id, repeat) not in done
    assert len(done) == len(pieces_of(asked)) - 1
    assert len(carried_out(text).done()) == len(done) + 1
    assert len(home.run_names()) == len(done) + 1


def test_options_count_for_a_strategy_however_it_is_spelled_and_for_one_spelling_alone(tmp_path):
    text = """title = "spellings"
[base.options]
workflow = { per_task = 1, phase_nodes = 2 }
"workflow+share" = { phase_nodes = 3 }
[matrix]
strategy = ["workflow", "workflow+share", "workflow+task", "offload"]
"""
    pieces = pieces_of(CampaignRun(*read_raw(write(tmp_path, text))))
    assert {cell.axes["strategy"]: plan.options for cell, _, plan in pieces} == {
        "workflow": {"per_task": 1, "phase_nodes": 2},
        "workflow+share": {"per_task": 1, "phase_nodes": 3},
        "workflow+task": {"per_task": 1, "phase_nodes": 2},
        "offload": {},
    }


def test_options_of_one_spelling_change_what_is_held(tmp_path):
    """From outside: they were ignored without a word."""
    text = """title = "held"
[base.options]
"workflow+share" = { phase_nodes = 3 }
[base.parameters]
classical_s = [5]
score_s = 0
[matrix]
strategy = ["workflow", "workflow+share"]
"""
    said = CliRunner().invoke(app, ["campaign", "run", write(tmp_path, text), "--json"])
    usual, shared = json.loads(said.stdout)
    assert shared["node_s"] == pytest.approx(3 * usual["node_s"])


def test_streamflow_can_be_named_as_a_strategy_of_its_own(tmp_path):
    text = """title = "engines"
[base]
program = "clustering"
world = "local"
parameters = { blobs = 500 }
[matrix.strategy]
streamflow = { strategy = "workflow", engine = "streamflow" }
workflow = { strategy = "workflow" }
"""
    pieces = pieces_of(CampaignRun(*read_raw(write(tmp_path, text))))
    assert [(cell.axes["strategy"], plan.engine) for cell, _, plan in pieces] == [
        ("streamflow", "streamflow"),
        ("workflow", None),
    ]


def test_every_key_is_in_the_reference():
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "campaign.md").read_text()
    models = (Campaign, Setting, Calibrated, Published, Claim)
    keys = [name for model in models for name in model.model_fields]
    assert [key for key in (*keys, *FIGURES, *QUIRKS) if not re.search(rf"`[^`]*\b{key}\b[^`]*`", page)] == []
