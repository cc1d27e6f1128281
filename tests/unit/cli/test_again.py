"""A run once more: the same bytes, the path of a profile, and resuming."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qloom.journal import home
from qloom.journal.file import FILE_NAME, read_events
from tests.journals import as_lines
from tests.unit.cli.typed import QUICK, refused, shell, write

SETS_AND_DICTIONARIES = """
    import dataclasses
    import qloom

    @dataclasses.dataclass(frozen=True)
    class Tag:
        words: frozenset

    @qloom.task(expected_s=0.5)
    def letters(words, options):
        return {word: set(word) for word in words} | {"options": options, "all": frozenset(words)}

    @qloom.task(expected_s=0.25)
    def count(mapping, tag):
        return sorted((word, len(found)) for word, found in mapping.items()), tag

    async def program(job):
        words = {"quick", "brown", "fox", "jumps", "lazy", "dog"}
        (found,) = await job.classical(letters(words, {"b": {1, 2}, "a": frozenset({"x", "y"})}))
        job.speculate(count(found, Tag(frozenset(words))))
        problem = {(u, v): 1.0 for u in sorted(words) for v in sorted(words) if u < v}
        sample = await job.quantum(problem, shots=5)
        counted = await job.classical(count(found, Tag(frozenset(words))))
        return counted, {word for word, bit in sample.values.items() if bit}, dict.fromkeys(words)
"""


@pytest.mark.slow
def test_the_virtual_journal_is_the_same_byte_for_byte_whatever_the_hash_seed():
    program = write("sets.py", SETS_AND_DICTIONARIES)
    journals = []
    for seed in ("0", "1", "2"):
        said = shell("run", program, "--world", "virtual", "-q", "--jobs", 2, PYTHONHASHSEED=seed)
        assert said.code == 0, said.err
        journals.append((home.find_run("last") / FILE_NAME).read_bytes())
    assert journals[0] == journals[1] == journals[2]
    assert len(journals[0]) > 1000


# Taking an earlier run as a profile


CHOOSES = """
    import os, random, time
    import qloom

    @qloom.task
    def throw(log):
        with open(log, "a") as file:
            file.write("x")
        time.sleep(0.05)
        return random.SystemRandom().random()

    async def program(job, log="", until=0.5):
        thrown = []
        while not thrown or (thrown[-1] < until and len(thrown) < 5):
            thrown += await job.classical(qloom.call(throw.function, log))
            await job.quantum({("a", "a"): thrown[-1] - 0.5}, shots=5, expected_s=0.01)
        return thrown
"""


def test_a_profile_takes_the_same_path_without_computing(cli, tmp_path):
    program, log = write("chooses.py", CHOOSES), tmp_path / "log"
    setting = ("--set", f"log={log}")
    real = cli("run", program, "--json", *setting)
    assert real.code == 0
    computed = log.read_text()
    assert len(computed) == len(real.json["results"][0])
    again = cli("run", program, "--json", "--world", "virtual", "--profile", "last", *setting)
    assert again.json["results"] == real.json["results"]
    assert log.read_text() == computed, "nothing was computed"
    assert again.json["node_s_busy"] == pytest.approx(real.json["node_s_busy"], rel=0.01)
    without = cli("run", program, "-q", "--world", "virtual", *setting)
    assert without.code == 0
    assert log.read_text() != computed


def test_last_is_one_run_for_all_strategies_of_a_comparison(cli):
    """A comparison must not take its own first run as the profile of its second."""
    Path("overheads.toml").write_text("task_s = 1.0\n")
    cli("run", "phases", "-q", *QUICK)
    measured = home.find_run("last")
    said = cli(
        *("compare", "phases", "--world", "virtual", "--json", "--profile", "last", *QUICK),
        *("--overheads", "overheads.toml", "--strategies", "offload,vqpu,offload"),
    )
    first, second, third = said.json
    assert first["wall_s"] == second["wall_s"] == third["wall_s"]
    for row in said.json:
        start = read_events(home.find_run(row["run"]))[0]
        assert home.find_run(start.profile).resolve() == measured.resolve(), "and it is the same when resumed"


# Resuming


def cut(lines):
    """Cut the journal of the last run off, as a kill does."""
    journal = home.find_run("last") / FILE_NAME
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))


def test_resume_goes_on(cli):
    whole = cli("run", "phases", "--world", "virtual", "--json").json
    cut(20)
    assert cli("runs", "--json").json[0]["state"] == "killed"
    assert "killed" in cli("explain").out
    resumed = cli("resume", "last", "--json").json
    assert resumed["results"] == whole["results"]
    assert resumed["run"] == whole["run"]
    assert cli("runs", "--json").json[0]["state"] == "done"
    assert cli("resume", whole["run"][:-2], "-q").out == "14.76\n", "resuming what is done runs nothing"


PROGRAM = """
    import qloom

    @qloom.task(expected_s=1)
    def {task}(x):
        return x

    async def program(job):
        await job.classical({task}(1))
        await job.quantum(qloom.delay(1))
        await job.classical({task}({argument}))
        return await job.classical({task}(3))
"""


def changed(cli, argument, after=1000):
    name = write("changes.py", PROGRAM.format(task="work", argument=2))
    assert cli("run", name, "--world", "virtual", "-q").code == 0
    cut(after)
    events = read_events(home.find_run("last"))
    write("changes.py", PROGRAM.format(task="work", argument=argument))
    return as_lines(events)


def test_a_program_that_changed_is_refused_with_the_first_difference(cli):
    names = [event["event"] for event in changed(cli, argument=2)]
    after_third_call = [place for place, name in enumerate(names) if name == "called"][2] + 1
    shutil.rmtree(home.runs_directory())
    changed(cli, argument=99, after=after_third_call)
    said = cli("resume", "last", "-q")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert "call 3 differs from the journal: it was classical: work(" in said.err
    assert "and is now classical: work(" in said.err


def test_a_change_after_what_the_journal_holds_is_no_difference(cli):
    names = [event["event"] for event in changed(cli, argument=2)]
    before_third_call = [place for place, name in enumerate(names) if name == "called"][2]
    shutil.rmtree(home.runs_directory())
    changed(cli, argument=99, after=before_third_call)
    said = cli("resume", "last")
    assert (said.code, said.out) == (0, "[3]\n")
    assert "note: the program's file has changed" in said.err


def test_resume_of_a_program_that_is_gone(cli):
    write("gone.py", PROGRAM.format(task="work", argument=2))
    cli("run", "gone.py", "--world", "virtual", "-q")
    cut(5)
    Path("gone.py").unlink()
    refused(cli("resume"), "is gone: ")
