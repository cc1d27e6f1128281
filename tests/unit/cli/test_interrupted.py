"""Ctrl-C: one line, with a way to go on only where there is one."""

from __future__ import annotations

import pytest

from qloom.cli import entry, running
from qloom.journal import home
from tests.unit.cli.typed import write

INTERRUPTS = """
    async def program(job):
        raise KeyboardInterrupt
"""


def press_ctrl_c(*_args, **_options):
    raise KeyboardInterrupt


def test_a_run_that_was_begun_is_named(cli):
    said = cli("run", write("prog.py", INTERRUPTS), "--quiet")
    assert (said.code, said.err) == (
        130,
        f"qloom: interrupted: continue with qloom resume {home.find_run('last').name}\n",
    )


def test_before_a_run_was_begun_there_is_nothing_to_go_on_with(cli, monkeypatch):
    cli("run", "phases", "--world", "virtual")
    monkeypatch.setattr(running, "load_program", press_ctrl_c)
    said = cli("run", "phases")
    assert (said.code, said.err) == (130, "qloom: interrupted\n")


def test_a_simulation_cannot_be_gone_on_with(cli, monkeypatch):
    monkeypatch.setattr("qloom.cli.load.run_load", press_ctrl_c)
    said = cli("load", "run", "--jobs", 10)
    assert said.code == 130
    assert said.err.endswith("qloom: interrupted\n")


def test_while_the_commands_are_imported(monkeypatch, capsys):
    monkeypatch.setattr("builtins.__import__", press_ctrl_c)
    with pytest.raises(SystemExit) as ended:
        entry.run()
    monkeypatch.undo()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "qloom: interrupted\n"
