"""Jobs that fail: exit codes and errors."""

from __future__ import annotations

import pytest

from tests.unit.cli.typed import FAILURES, shell, write


def test_a_job_that_fails_exits_with_1():
    write("failures.py", FAILURES)
    said = shell("run", "failures.py:fails", "-q")
    assert said.code == 1
    assert said.out == ""
    assert said.err.startswith("qloom: job j1: task bad on n1 raised ValueError: no luck\n")


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_job_that_fails_in_virtual_time(cli, command):
    write("failures.py", FAILURES)
    said = cli(command, "failures.py:raises", "--world", "virtual", "--quiet")
    assert said.code == 1
    assert said.err == "qloom: job j1: the program raised KeyError: 'x' (failures.py, line 12)\n"
    assert cli("resume", "-q").code == 1
    assert cli("runs", "--json").json[0]["state"] == "failed"


def test_errors_are_json_too(cli):
    write("failures.py", FAILURES)
    said = cli("run", "failures.py:fails", "--world", "virtual", "--json")
    assert (said.code, said.err) == (1, "")
    (error,) = said.json["errors"]
    assert (error["error"], error["job"]) == ("TaskFailed", "j1")
    assert said.json["results"] == [None]
    said = cli("compare", "failures.py:fails", "--world", "virtual", "--json", "--strategies", "offload,split")
    assert said.code == 1
    assert [row["strategy"] for row in said.json["rows"]] == ["offload", "split"]
    assert [error["error"] for error in said.json["errors"]] == ["TaskFailed"] * 2
    for words in (("run", "nothing", "--json"), ("show", "nothing", "--json"), ("run", "--json"), ("--json",)):
        said = cli(*words)
        assert (said.code, said.err) == (2, ""), words
        assert [sorted(error) for error in said.json["errors"]] == [["error", "hint", "job", "message"]]
