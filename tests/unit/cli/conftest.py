"""A command line in a directory of its own."""

from __future__ import annotations

import sys

import pytest

from qloom.cli import main
from tests.unit.cli.typed import Said


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """A directory of its own, eighty columns, and no trace of the programs that were imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("qloom_program_"):
            del sys.modules[name]


@pytest.fixture
def cli(monkeypatch, capfd):
    """Type a command, in this process."""

    def typed(*words):
        monkeypatch.setattr(sys, "argv", ["qloom", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.run()
        out, err = capfd.readouterr()
        return Said(ended.value.code or 0, out, err)

    return typed
