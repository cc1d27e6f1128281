"""A campaign that was killed goes on where it was, and what is done is never run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.errors import JobError, JournalError
from qloom.journal import home
from qloom.journal.file import FILE_NAME
from qloom.lab.campaign.execute import verify
from qloom.lab.campaign.read import read_raw
from qloom.lab.campaign.rows import read_results, rows_of
from qloom.lab.campaign.store import CELLS, CampaignRun
from tests.campaign.helpers import SMALL, carried_out, results, write

MANY = SMALL.replace("repeats = 3", "repeats = 10")
DEADLINE_S = 60.0


def figures(rows):
    return [{name: value for name, value in row.items() if name != "runs"} for row in rows]


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(tmp_path):
    text = write(tmp_path, MANY)
    store = CampaignRun(*read_raw(text)).directory
    wanted = 4 * 10
    for kill_at in (1, 23):
        command = [sys.executable, "-c", "from qloom.cli.main import run; run()", "campaign", "run", text, "--json"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until and process.poll() is None and _lines(store) < kill_at:
            time.sleep(0.002)
        assert process.poll() is None, "it was over before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert kill_at <= _lines(store) < wanted
    before = (store / CELLS).read_bytes()
    finished = read_results(carried_out(text))
    assert (store / CELLS).read_bytes().startswith(before[: before.rfind(b"\n") + 1]), "done cells are kept"
    entries = [json.loads(line) for line in (store / CELLS).read_text().splitlines()]
    assert len({(entry["cell"], entry["repeat"]) for entry in entries}) == len(entries) == wanted
    again = figures(rows_of(results(write(tmp_path, MANY, "other.toml"))))
    assert figures(rows_of(finished)) == again


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("qloom.lab.campaign.execute.execute", interrupt)
    outcome = CliRunner().invoke(app, ["campaign", "run", write(tmp_path)])
    assert "run the same command to continue" in str(outcome.exception)
    assert outcome.exception.exit_code == 130


def _lines(store):
    path = store / CELLS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_what_is_done_is_not_run_again(tmp_path):
    text = write(tmp_path)
    carried_out(text)
    runs = home.run_names()
    assert len(runs) == 12
    carried_out(text)
    assert home.run_names() == runs


def test_what_a_cell_raises_comes_out_whatever_it_is(tmp_path):
    store = carried_out(write(tmp_path))
    with pytest.raises(BlockingIOError, match="of the cell"), store.claim("a cell", 0):
        raise BlockingIOError("of the cell, not of the claim")


def test_a_torn_line_and_a_lost_journal_are_run_again(tmp_path):
    text = write(tmp_path)
    store = carried_out(text)
    lines = (store.directory / CELLS).read_bytes().splitlines(keepends=True)
    (store.directory / CELLS).write_bytes(b"".join(lines[:-1]) + lines[-1][:9])
    lost = json.loads(lines[0])
    (home.runs_directory() / lost["run"] / FILE_NAME).unlink()
    kept = dict(store.done())
    again = carried_out(text).done()
    assert (len(kept), len(again)) == (10, 12)
    assert {key: again[key] for key in kept} == kept
    assert again[lost["cell"], lost["repeat"]] != lost["run"]


def test_a_report_on_half_a_campaign_says_what_is_missing(tmp_path):
    store = carried_out(write(tmp_path))
    lines = (store.directory / CELLS).read_bytes().splitlines(keepends=True)
    (store.directory / CELLS).write_bytes(b"".join(lines[:-1]))
    with pytest.raises(JournalError, match="is not done"):
        read_results(store)


def test_a_cell_that_fails_is_tried_again(tmp_path):
    (tmp_path / "fails.py").write_text(
        "from pathlib import Path\n\nasync def program(job, mark):\n    assert Path(mark).exists(), 'no luck'\n"
    )
    mark = tmp_path / "mark"
    text = write(
        tmp_path,
        f'title = "x"\n[base]\nprogram = "{tmp_path}/fails.py"\nparameters = {{ mark = "{mark}" }}\n'
        '[matrix]\nstrategy = ["offload", "workflow"]\n',
    )
    with pytest.raises(JobError, match=r"2 of 2 cells failed; strategy offload, repeat 1 .*no luck"):
        carried_out(text)
    mark.touch()
    assert len(carried_out(text).done()) == 2


def test_verify_compares_byte_for_byte(tmp_path):
    store = carried_out(write(tmp_path))
    assert verify(store, lambda *_: None) == (12, 0, [])
    run = next(iter(store.done().values()))
    journal = home.find_run(run) / FILE_NAME
    journal.write_bytes(journal.read_bytes().replace(b'"task_started"', b'"task_started" ', 1))
    compared, others, different = verify(store, lambda *_: None)
    assert (compared, others, len(different)) == (12, 0, 1)
    assert run in different[0]
