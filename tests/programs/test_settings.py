"""`--set` reads values as the program's annotations say, errors name the user's line, `auto` falls back."""

from __future__ import annotations

import pytest

from qloom.journal import home
from tests.unit.cli.conftest import cli  # noqa: F401

PROGRAM = """
import numpy

def inner():
    return numpy.linalg.inv(numpy.zeros((2, 2)))

def program(job, flag: bool = True, size: int = 1, scale: float = 1.0, name: str = "x", anything=None, quiet=False):
    return flag, size, scale, name, anything, quiet

def fails(job):
    return inner()

def sleeps(job):
    import time
    time.sleep(0.001)
    return "slept"
"""


@pytest.fixture(autouse=True)
def _program(tmp_path, monkeypatch, qloom_home):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)


def test_values_are_read_as_annotated(cli):  # noqa: F811
    words = ("flag=False", "size=3", "scale=2", "name=007", "anything=1,2", "quiet=no")
    said = cli(
        "run", "program.py", "--world", "virtual", "-q", *(word for value in words for word in ("--set", value))
    )
    assert said.out.strip() == "(False, 3, 2.0, '007', [1, 2], False)"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("flag=maybe", "flag is true or false, not 'maybe'"),
        ("size=1.5", "size is a whole number, not '1.5'"),
        ("scale=big", "scale is a number, not 'big'"),
        ("quiet=3", "quiet is true or false, not '3'"),
    ],
)
def test_values_of_another_type_are_refused(cli, value, message):  # noqa: F811
    said = cli("run", "program.py", "--world", "virtual", "-q", "--set", value)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert message in said.err


def test_an_error_in_a_library_names_the_users_line_and_the_log_has_the_way_to_it(cli):  # noqa: F811
    said = cli("run", "program.py:fails", "-q")
    assert said.err == "qloom: job j1: the program raised LinAlgError: Singular matrix (program.py, line 5)\n"
    log = (home.find_run("last") / "logs" / "j1.log").read_text()
    assert log.count("program.py") == 2
    assert log.count("File ") == 2
    assert log.splitlines()[-1] == "numpy.linalg.LinAlgError: Singular matrix"


def test_auto_falls_back_for_a_program_that_cannot_be_tried(cli):  # noqa: F811
    said = cli("run", "program.py:sleeps", "--strategy", "auto")
    assert said.code == 0
    assert said.out.strip() == "slept"
    assert "auto abstains: --strategy malleable; the program cannot be tried in virtual time" in said.err
