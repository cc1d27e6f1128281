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


ONLY_ONCE = """
    from pathlib import Path
    import qloom

    @qloom.task(expected_s=5)
    def work():
        if Path("mark").exists():
            raise ValueError("once is enough")
        Path("mark").touch()

    async def program(job):
        await job.classical(work())
"""


def test_a_comparison_shows_no_figures_of_a_job_that_failed(cli):
    """What it held until then would look like the cheapest of all."""
    write("once.py", ONLY_ONCE)
    said = cli("compare", "once.py", "--world", "virtual", "--strategies", "offload,workflow")
    assert said.code == 1
    offload, workflow = said.out.splitlines()[-3:-1]
    assert offload.split() == ["offload", "5.0", "15.0", "5.0", "0.0", "0.0", "0.0"]
    assert workflow.split() == ["workflow", "failed", "-", "-", "-", "-", "-"]
    assert "once is enough" in said.err


def test_a_run_that_failed_says_so_beside_its_figures(cli):
    write("failures.py", FAILURES)
    assert "(failed)" in cli("run", "failures.py:fails", "--world", "virtual").err
    assert "(failed)" in cli("show").out
    assert cli("show", "--json").json["state"] == "failed"


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
    assert [row["state"] for row in said.json["rows"]] == ["failed"] * 2
    assert {row[name] for row in said.json["rows"] for name in row if name.endswith("_s")} == {None}
    for words in (("run", "nothing", "--json"), ("show", "nothing", "--json"), ("run", "--json"), ("--json",)):
        said = cli(*words)
        assert (said.code, said.err) == (2, ""), words
        assert [sorted(error) for error in said.json["errors"]] == [["error", "hint", "job", "message"]]
