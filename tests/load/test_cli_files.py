"""Files that `qloom load run` is to write are judged before the simulation."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.errors import InputError


def load_run(*words):
    return CliRunner().invoke(app, ["load", "run", "--jobs", "30", *map(str, words)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("--csv", "nowhere/jobs.csv", "there is no directory nowhere"),
        ("--swf", "nowhere/jobs.swf", "there is no directory nowhere"),
        ("--csv", ".", "cannot write"),
        ("--figure", "load.xyz", "use .png, .svg, .pdf"),
        ("--figure", "load", "use .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_runs(monkeypatch, tmp_path, option, name, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("qloom.cli.load.run_load", lambda load: pytest.fail("the simulation was begun"))
    with pytest.raises(InputError, match=said):
        load_run(option, name)


def test_the_table_is_there_even_if_a_file_cannot_be_written(monkeypatch, tmp_path):
    def full(path, records):
        raise InputError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr("qloom.cli.load.write_csv", full)
    runner = CliRunner().invoke(app, ["load", "run", "--jobs", "30", "--csv", str(tmp_path / "jobs.csv")])
    assert isinstance(runner.exception, InputError)
    assert "turnaround" in runner.output
