"""`qloom advise`, `--strategy auto`, and what `qloom show` says of other strategies."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.errors import InputError
from qloom.journal import home
from qloom.journal.file import read_events
from qloom.lab.advisor import FALLBACK
from qloom.lab.advisor.slurm import NoAnswer
from qloom.runs.plan import Plan
from qloom.runs.submit import SubmittedRun

GUESS = """
from qloom import call


async def program(job):
    return await job.classical(call(pow, 2, 3))
"""


def told(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: str) -> str:
    with pytest.raises(InputError) as error:
        CliRunner().invoke(app, list(words), catch_exceptions=False, standalone_mode=False)
    assert error.value.exit_code == 2
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.fixture
def guess(tmp_path):
    path = tmp_path / "guess.py"
    path.write_text(GUESS)
    return path


def test_a_table_the_reason_and_the_flag():
    table = told("advise", "phases", "--wait", "30", "--samples", "4")
    rows = table.splitlines()
    assert max(len(row) for row in rows) <= 80
    (flag,) = [number for number, row in enumerate(rows) if row.startswith("--strategy ")]
    assert len(rows[flag].split()) == 2
    reason = " ".join(row.strip() for row in rows[flag + 1 :])
    assert "nodes take" in reason
    assert reason.endswith("% dearer")
    for strategy in ("coschedule", "offload", "workflow", "pertask", "vqpu", "malleable", "split", "weave"):
        assert any(row.strip().startswith(strategy) for row in rows)


def test_the_flag_alone_and_json_agree():
    advice = json.loads(told("advise", "phases", "--json", "--samples", "4"))
    assert told("advise", "phases", "--quiet", "--samples", "4").strip() == advice["flag"]
    assert advice["estimates"][0]["wall_s"].keys() == {"mean", "low", "high"}


def test_advice_on_an_earlier_run_takes_its_program_and_durations():
    told("run", "phases", "--world", "virtual", "--set", "quantum_s=500", "--set", "iterations=1", "--quiet")
    advice = json.loads(told("advise", "last", "--json", "--samples", "4"))
    assert 450 < advice["quantum_s"] < 550


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "there is no program and no run 'nonsense'"),
        (["last"], "there is no run yet"),
        (["phases", "--wait", "-1"], "a wait is a finite number"),
        (["phases", "--value", "-1"], "a second is worth"),
        (["phases", "--strategies", "best"], "unknown strategy 'best'"),
        (["phases", "--set", "speed=3"], "speed"),
    ],
)
def test_bad_input_is_one_line(words, message):
    assert message in refused("advise", *words)


def test_a_program_without_durations_is_one_line(guess):
    message = refused("advise", str(guess))
    assert "nothing says how long pow takes" in message
    assert f"--strategy {FALLBACK}" in message


def test_a_run_with_an_empty_history_is_one_line():
    told("run", "phases", "--world", "virtual", "--quiet")
    journal = home.find_run("last") / "journal.jsonl"
    journal.write_text(journal.read_text().splitlines()[0] + "\n")
    assert "has an empty history" in refused("advise", "last")


def test_settings_do_not_go_with_a_run():
    told("run", "phases", "--world", "virtual", "--quiet")
    assert "a run has its own settings" in refused("advise", "last", "--nodes", "9")


def test_auto_runs_the_choice_and_the_journal_says_why():
    told("run", "phases", "--world", "virtual", "--strategy", "auto", "--quiet")
    start = read_events(home.find_run("last"))[0]
    assert start.strategy == start.advice["strategy"] == start.advice["estimates"][0]["strategy"]
    assert start.advice["reason"]


def test_auto_abstains_with_the_default(guess):
    assert told("run", str(guess), "--world", "virtual", "--strategy", "auto", "--quiet").strip() == "[8]"
    start = read_events(home.find_run("last"))[0]
    assert start.strategy == FALLBACK
    assert "pow" in start.advice["abstains"]


def test_auto_refuses_what_a_named_strategy_refuses():
    assert "speed" in refused("run", "phases", "--world", "virtual", "--strategy", "auto", "--set", "speed=3")
    assert "option" in refused("run", "phases", "--world", "virtual", "--strategy", "auto", "--option", "haste=3")


def test_submit_takes_the_choice_of_auto(monkeypatch):
    def silent(site):
        raise NoAnswer("Slurm says nothing")

    plans = []
    monkeypatch.setattr("qloom.lab.advisor.slurm.read_queue", silent)
    monkeypatch.setattr(Plan, "check", lambda plan: None)  # there is no Slurm here
    monkeypatch.setattr(
        "qloom.runs.submit.submit", lambda plan, driver: plans.append(plan) or SubmittedRun("run", "1")
    )
    told("submit", "phases", "--strategy", "auto", "--json")
    assert (plans[0].strategy, plans[0].advice["abstains"]) == (FALLBACK, "Slurm says nothing")


def shown() -> str:
    return " ".join(told("show").split())


def test_show_says_what_another_strategy_would_have_cost():
    told("run", "phases", "--world", "virtual", "--strategy", "vqpu", "--quiet")
    assert "replayed in virtual time, this run takes" in shown()
    assert "node-seconds, pertask" in shown()
    told("run", "phases", "--world", "virtual", "--strategy", "weave", "--quiet")
    assert "no other strategy costs less" in shown()


def test_show_is_quiet_if_the_program_has_changed_or_gone(guess):
    told("run", str(guess), "--world", "virtual", "--quiet")
    assert "replayed" in shown()
    guess.write_text(GUESS + "\nraise SystemExit('not today')\n")
    assert "replayed" not in shown()
    guess.unlink()
    assert "replayed" not in shown()
