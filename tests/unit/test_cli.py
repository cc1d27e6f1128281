"""The command line as a user types it: figures, tables, JSON, exit codes, and one clear line for bad input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from qloom.cli import main
from qloom.journal import home
from qloom.journal.file import FILE_NAME, read_events
from qloom.version import __version__

QLOOM = Path(sys.executable).with_name("qloom")
SEVEN = ("coschedule", "offload", "workflow", "vqpu", "malleable", "split", "weave")
COMMANDS = ("run", "compare", "resume", "runs", "show", "explain", "timeline", "schema", "demo")
ROW = (
    "strategy",
    "world",
    "jobs",
    "wall_s",
    "node_s_held",
    "node_s_busy",
    "qpu_s_held",
    "qpu_s_busy",
    "vqpu_s_held",
)
QUICK = (
    "--set",
    "classical_s=0.02,0.01",
    "--set",
    "score_s=0.01",
    "--set",
    "quantum_s=0.02",
    "--set",
    "iterations=2",
)


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


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


def shell(*words, **environment):
    """Type a command, in a process of its own."""
    done = subprocess.run(
        [str(QLOOM), *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def write(name, text):
    Path(name).write_text(textwrap.dedent(text))
    return name


# The figures of the papers


def test_what_the_seven_strategies_hold():
    said = shell("compare", "phases", "--world", "virtual", "--json")
    assert said.code == 0
    assert said.err == ""
    rows = {row["strategy"]: row for row in said.json}
    assert tuple(rows) == SEVEN
    node_s = {**dict.fromkeys(SEVEN, 301.2), "malleable": 162.0, "workflow": 114.0, "weave": 54.6}
    for strategy, row in rows.items():
        assert not [name for name in ROW if name not in row]
        assert (row["world"], row["jobs"]) == ("virtual", 1)
        expected = {
            "wall_s": 100.4,
            "node_s_held": node_s[strategy],
            "node_s_busy": 54.0,
            "qpu_s_held": 100.4 if strategy == "coschedule" else 48.0,
            "qpu_s_busy": 48.0,
            "vqpu_s_held": {"vqpu": 100.4, "weave": 48.0}.get(strategy, 0.0),
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=0.005), strategy


def test_doubling_the_quantum_time_adds_it_to_every_wall(cli):
    rows = [
        cli("compare", "phases", "--world", "virtual", "--json", "--set", f"quantum_s={seconds}").json
        for seconds in (12, 24)
    ]
    for once, twice in zip(*rows, strict=True):
        assert twice["wall_s"] - once["wall_s"] == pytest.approx(48.0), once["strategy"]


def test_combinations_of_holds(cli):
    said = cli("compare", "phases", "--world", "virtual", "--json", "--strategies", "malleable+share, offload+whole")
    malleable, offload = said.json
    assert malleable["strategy"] == "malleable+share"
    assert malleable["vqpu_s_held"] == pytest.approx(100.4)
    assert offload["qpu_s_held"] == pytest.approx(100.4)


# What is printed


def test_run_prints_the_result_alone_on_stdout():
    said = shell("run", "phases", *QUICK)
    assert (said.code, said.out) == (0, "0.37\n")
    assert "offload" in said.err, "the table goes to stderr"


def test_quiet_prints_the_result_and_nothing_else(cli):
    assert cli("run", "phases", "--world", "virtual", "--quiet") == Said(0, "14.76\n", "")
    assert cli("resume", "-q") == Said(0, "14.76\n", "")


def test_one_result_a_job(cli):
    assert cli("run", "phases", "--world", "virtual", "-q", "--jobs", 3).out == "14.76\n" * 3


def test_json_of_a_run(cli):
    said = cli("run", "phases", "--world", "virtual", "--json", "--jobs", 2, "--strategy", "split")
    assert said.err == ""
    assert [name for name in ROW if name not in said.json] == []
    assert said.json["results"] == [14.76, 14.76]
    assert said.json["jobs"] == 2
    assert "errors" not in said.json


def test_local_and_virtual_give_the_same_result(cli):
    local, virtual = (cli("run", "phases", "--world", world, "-q", *QUICK) for world in ("local", "virtual"))
    assert local == virtual


def test_tables_fit_eighty_columns(cli):
    long_run = ("--set", "quantum_s=1000000", "--nodes", 40)
    shown = [
        cli("compare", "phases", "--world", "virtual", "--strategies", ",".join([*SEVEN, "malleable+share"])).out,
        cli("compare", "phases", "--world", "virtual", "--strategies", "malleable+share", *long_run).out,
        cli("run", "phases", "--world", "virtual", "--strategy", "malleable+share", "--jobs", 2, *long_run).err,
        cli("show").out,
        cli("runs").out,
    ]
    for text in shown:
        assert "malleable+share" in text
        lines = [line for line in text.splitlines() if not line.startswith("journal: ")]
        assert max(map(len, lines)) <= 80
        assert "…" not in text
    table = shown[0].splitlines()
    assert sum(len(line.split()) == 7 and line.split()[0] in (*SEVEN, "malleable+share") for line in table) == 8
    assert all(len(line.split()) == 6 for line in shown[4].splitlines() if "phases" in line), "one line a run"


def test_runs_and_its_ways_to_print(cli):
    assert cli("runs", "--json").json == []
    assert cli("runs", "-q").out == ""
    cli("run", "phases", "--world", "virtual", "-q")
    cli("run", "phases", "--world", "virtual", "-q", "--strategy", "split", "--jobs", 2)
    newest, oldest = cli("runs", "--json").json
    assert (newest["strategy"], newest["jobs"], newest["state"], newest["world"]) == ("split", 2, "done", "virtual")
    assert cli("runs", "--quiet").out.split() == [newest["run"], oldest["run"]]
    assert cli("runs", "--quiet", "--limit", 1).out.split() == [newest["run"]]
    table = cli("runs").out
    assert table.index(newest["run"]) < table.index(oldest["run"])
    assert cli("runs", "--limit", 0, "--json").json == [newest, oldest]
    assert cli("runs", "--limit", 1).out.splitlines()[-1] == "... and 1 more (--limit 0)"
    assert "more" not in table


@pytest.mark.parametrize("damage", [None, "", "{", "5", '{"x": 1}', "lies"])
def test_the_list_of_runs_can_be_rebuilt(cli, qloom_home, damage):
    cli("run", "phases", "--world", "virtual", "-q")
    good = cli("runs", "--json").json
    index = qloom_home / "index.json"
    if damage is None:
        index.unlink()
    elif damage == "lies":
        index.write_text(json.dumps({good[0]["run"]: {**good[0], "state": "a lie"}}))
    else:
        index.write_text(damage)
    assert cli("runs", "--rebuild", "--json").json == good
    assert cli("runs", "--json").json == good


def test_show(cli):
    cli("run", "phases", "--world", "virtual", "-q", "--jobs", 2, "--set", "quantum_s=6")
    shown = cli("show", "last", "--json").json
    assert [job["job"] for job in shown["per_job"]] == ["j1", "j2"]
    assert sum(job["node_s_held"] for job in shown["per_job"]) == pytest.approx(shown["node_s_held"])
    assert shown["parameters"] == {"quantum_s": 6}
    text = cli("show").out
    assert "j1" in text
    assert "j2" in text
    assert str(home.find_run("last") / FILE_NAME) in text
    quiet = cli("show", "-q").out
    assert f"node_s_held={shown['node_s_held']}" in quiet
    assert len(quiet.splitlines()) == 1
    assert cli("show", shown["run"], "--json").json == shown


def test_explain(cli):
    cli("run", "phases", "--world", "virtual", "-q", "--strategy", "coschedule")
    text = cli("explain").out
    assert "held nodes idle" in text
    assert cli("explain", "last", "--json").json["sentences"] == text.splitlines()


@pytest.mark.parametrize(
    ("name", "begins"), [("x.svg", b"<?xml"), ("x.png", b"\x89PNG"), ("x.html", b"<!"), ("X.SVG", b"<?xml")]
)
def test_timeline(cli, name, begins):
    cli("run", "phases", "--world", "virtual", "-q", "--set", "iterations=1")
    assert cli("timeline", "last", "-o", name) == Said(0, f"{name}\n", "")
    assert Path(name).read_bytes().lstrip().lower().startswith(begins.lower())


def test_schema_is_a_schema(cli):
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(cli("schema").json)


def test_version(cli):
    assert cli("--version") == Said(0, f"qloom {__version__}\n", "")
    assert shell("--version").out == f"qloom {__version__}\n"


@pytest.mark.parametrize("words", [(), *((command,) for command in COMMANDS)])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(cli, words, flag):
    said = cli(*words, flag)
    assert said.code == 0
    assert said.err == ""
    assert f"Usage: qloom {' '.join(words)}".strip() in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    if not words:
        assert [command for command in COMMANDS if command not in said.out] == []
        assert "..." not in said.out.partition("Commands:")[2], "a summary is cut"


# The same journal, whatever the hash seed


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
        assert home.find_run(start["profile"]).resolve() == measured.resolve(), "and it is the same when resumed"


# Resuming


def cut(lines):
    """Cut the journal of the last run off, as a kill does."""
    journal = home.find_run("last") / FILE_NAME
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))


def test_resume_goes_on(cli):
    whole = cli("run", "phases", "--world", "virtual", "--json").json
    cut(20)
    assert cli("runs", "--json").json[0]["state"] == "open"
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
    return events


def test_a_program_that_changed_is_refused_with_the_first_difference(cli):
    names = [event["event"] for event in changed(cli, argument=2)]
    after_third_call = [place for place, name in enumerate(names) if name == "called"][2] + 1
    shutil.rmtree(home.runs_directory())
    changed(cli, argument=99, after=after_third_call)
    said = cli("resume", "last", "-q")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert "call 3 of the journal, classical(work), was not made again as it was" in said.err
    assert "the program now calls classical(work)" in said.err


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
    refused(cli("resume"), "gone.py: No such file")


# Exit codes


FAILURES = """
    import os, qloom

    @qloom.task(expected_s=1)
    def bad():
        raise ValueError("no luck")

    async def fails(job):
        await job.classical(bad())

    async def raises(job):
        raise KeyError("x")

    async def wide(job):
        await job.classical(bad().needs(nodes=9))

    async def no_qubo(job):
        await job.quantum("not a problem")

    async def no_task(job):
        await job.classical(5)

    async def wants_a_parameter(job, size):
        return size
"""


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


# Bad input


def refused(said, *words):
    """One clear line, exit code 2."""
    assert said.code == 2, said
    assert said.out == ""
    assert len(said.err.splitlines()) == 1, said.err
    assert said.err.startswith("qloom: ")
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err


@pytest.mark.parametrize(
    ("complaint", "hint"),
    [
        ("fatal: Could not establish a configuration source", "log in to a cluster, set SLURM_CONF, or try: qloom"),
        ("error: Unable to contact slurm controller (connect failure)", "(scontrol ping)"),
    ],
)
def test_without_a_cluster_it_is_said_how_to_get_one(cli, monkeypatch, tmp_path, complaint, hint):
    for program in ("salloc", "scancel", "scontrol", "sinfo", "squeue", "srun"):
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{program}: {complaint}' >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    refused(cli("run", "phases", "--world", "slurm"), "Slurm does not answer", hint)


def test_a_testbed_that_is_down_says_what_still_points_at_it(cli, monkeypatch):
    class Gone:
        environment = {"SLURM_CONF": "/bed/slurm.conf", "QLOOM_BROKER": "unix:/bed/sock"}  # noqa: RUF012

        def down(self) -> None: ...

    monkeypatch.setattr("qloom.cli.testbed._find", lambda name, directory: Gone())
    monkeypatch.setenv("SLURM_CONF", "/bed/slurm.conf")
    monkeypatch.setenv("QLOOM_BROKER", "unix:/another/sock")
    assert cli("testbed", "down").err.strip().endswith(": unset SLURM_CONF")
    monkeypatch.delenv("SLURM_CONF")
    assert cli("testbed", "down").err == ""


SITES = {
    "key.toml": "nodez = 3",
    "type.toml": 'nodes = "three"',
    "negative.toml": "nodes = -1",
    "qpukey.toml": '[[qpus]]\nname = "q"\ntechnologie = "annealer"',
    "qputype.toml": '[[qpus]]\nname = "q"\ntechnology = "magic"',
    "shares.toml": '[[qpus]]\nname = "q"\nshares = 0',
    "twice.toml": '[[qpus]]\nname = "q"\n[[qpus]]\nname = "q"',
    "broken.toml": "nodes = = 3",
    "binary.toml": "\udcff",
    "overheads.toml": "tick_s = -1",
    "unknown.toml": "tock_s = 1",
}
PROGRAMS = {
    "syntax.py": "def program(:\n",
    "none.py": "x = 1\n",
    "sync.py": "def program(job):\n    pass\n",
    "imports.py": "import no_such_module\n",
    "lines.py": "raise ValueError('a\\nb')\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "type.job.toml": 'name = "x"\n[[phase]]\nkind = "classical"\n[[phase.task]]\ncommand = "not a list"\n',
    "key.job.toml": 'name = "x"\ncolour = 1\n[[phase]]\nkind = "classical"\n[[phase.task]]\ncommand = ["true"]\n',
    "loop.job.toml": 'name = "x"\n[loop]\n[[phase]]\nkind = "classical"\n[[phase.task]]\ncommand = ["true"]\n',
    "empty.job.toml": "",
    "broken.job.toml": "name = \n",
}
BAD = [
    (("run", "phases", "--strategy", "magic"), ["no strategy is called 'magic'", "malleable"]),
    (("run", "phases", "--strategy", "maleable"), ["'maleable' (is it malleable?", "NAME+share", "auto"]),
    (("run", "phases", "--strategy", ""), ["no strategy is called ''"]),
    (("run", "phases", "--strategy", "malleable+foo"), ["no way to hold a QPU is called 'foo'", "whole, share"]),
    (("compare", "phases", "--strategies", "offload,magic"), ["no strategy is called 'magic'"]),
    (("compare", "phases", "--strategies", ","), ["no strategy was named"]),
    (("run", "phases", "--world", "mars"), ["no world is called 'mars'", "local, virtual"]),
    (("run", "phases", "--jobs", "0"), ["--jobs must be at least 1"]),
    (("run", "phases", "--jobs", "two"), ["--jobs"]),
    (("run", "phases", "--nodes", "0"), ["at least one node"]),
    (("run", "phases", "--nodes", "-2"), ["at least one node"]),
    (("run", "phases", "--seed", "x"), ["--seed"]),
    (("run", "phases", "--set", "iterations"), ["'iterations' is no setting", "--set name=value"]),
    (("run", "phases", "--set", "=1"), ["'=1' is no setting"]),
    (("run", "phases", "--set", "a b=1"), ["is no setting"]),
    (
        ("run", "phases", "--set", "iteration=1"),
        ["phases has no parameter 'iteration' (is it iterations?", "it takes: classical_s"],
    ),
    (("run", "phases", "--option", "patience_s=1"), ["no option 'patience_s'"]),
    (("run", "phases", "--strategy", "malleable", "--option", "patience_s=long"), ["must be a number"]),
    (("run", "phases", "--strategy", "malleable", "--option", "min_nodes=9"), ["min_nodes is 9", "1 to 3"]),
    (("run", "phases", "--qpu", "q"), ["'q' is not a QPU", "NAME:TECHNOLOGY"]),
    (("run", "phases", "--qpu", "q:magic"), ["no QPU technology is called 'magic'", "annealer"]),
    (("run", "phases", "--qpu", "q:annealer:asleep"), ["is not a QPU"]),
    (("run", "phases", "--qpu", "q:annealer", "--qpu", "q:photonic"), ["two QPUs have the same name"]),
    (("run", "phases", "--site", "key.toml"), ["key.toml", "nodez is not a known key (is it nodes?)"]),
    (("run", "phases", "--site", "type.toml"), ["type.toml", "nodes", "integer"]),
    (("run", "phases", "--site", "negative.toml"), ["at least one node"]),
    (("run", "phases", "--site", "qpukey.toml"), ["technologie is not a known key (is it technology?)"]),
    (("run", "phases", "--site", "qputype.toml"), ["no QPU technology is called 'magic'"]),
    (("run", "phases", "--site", "shares.toml"), ["shares and lanes must be at least 1"]),
    (("run", "phases", "--site", "twice.toml"), ["two QPUs have the same name"]),
    (("run", "phases", "--site", "broken.toml"), ["broken.toml is not TOML"]),
    (("run", "phases", "--site", "binary.toml"), ["binary.toml is not TOML"]),
    (("run", "phases", "--site", "missing.toml"), ["cannot read the site file missing.toml"]),
    (("run", "phases", "--site", "."), ["cannot read the site file ."]),
    (("run", "phases", "--overheads", "overheads.toml"), ["overheads are seconds", "negative"]),
    (("run", "phases", "--overheads", "unknown.toml"), ["overheads.tock_s is not a known key (is it tick_s?)"]),
    (("run", "phases", "--profile", "last"), ["there is no run yet"]),
    (("run", "phases", "--world", "virtual", "--profile", "nothing"), ["there is no run 'nothing'"]),
    (("run", "nothing"), ["no program is called 'nothing'", "phases"]),
    (("run", "missing.py"), ["missing.py: No such file"]),
    (("run", "missing.toml"), ["missing.toml: No such file"]),
    (("run", "syntax.py"), ["syntax.py cannot be imported: SyntaxError"]),
    (("run", "none.py"), ["none.py has no `async def program(job, ...)`"]),
    (("run", "none.py:other"), ["has no `async def other(job, ...)`"]),
    (("run", "sync.py"), ["sync.py has no `async def program(job, ...)`"]),
    (("run", "imports.py"), ["imports.py cannot be imported: ModuleNotFoundError"]),
    (("run", "lines.py"), ["lines.py cannot be imported: ValueError"]),
    (("run", "exits.py"), ["exits.py cannot be imported: SystemExit"]),
    (("run", "failures.py:wants_a_parameter"), ["missing a required argument: 'size'"]),
    (("run", "type.job.toml"), ["type.job.toml", "command must be a list of text"]),
    (("run", "key.job.toml"), ["key.job.toml", "colour is not a known key"]),
    (("run", "loop.job.toml"), ["loop.job.toml", "a loop needs a limit"]),
    (("run", "empty.job.toml"), ["empty.job.toml", "missing"]),
    (("run", "broken.job.toml"), ["broken.job.toml is not TOML"]),
    (("run",), ["Missing argument"]),
    (("run", "phases", "--frobnicate"), ["--frobnicate"]),
    (("run", "phases", "extra"), ["extra"]),
    (("run", "phases", "--slurm", "acount=us"), ["slurm.acount is not a known key (is it account?)"]),
    (("frobnicate",), ["no command is called 'frobnicate'", "qloom --help"]),
    (("rum", "phases"), ["no command is called 'rum' (is it run?)"]),
    (("resume", "nothing"), ["there is no run 'nothing'", "qloom runs"]),
    (("resume",), ["there is no run yet", "qloom run PROGRAM"]),
    (("show", "nothing"), ["there is no run 'nothing'"]),
    (("explain", "nothing"), ["there is no run 'nothing'"]),
    (("timeline", "nothing"), ["there is no run 'nothing'"]),
]


@pytest.mark.parametrize(
    ("words", "said"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(cli, qloom_home, words, said):
    for name, text in (*SITES.items(), *PROGRAMS.items()):
        Path(name).write_bytes(text.encode(errors="surrogateescape"))
    write("failures.py", FAILURES)
    refused(cli(*words), *said)
    assert list(qloom_home.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("phases", "--set", "iterations=0"), "iterations must be a whole number of at least 1, not 0"),
        (("phases", "--set", "iterations=2.5"), "iterations must be a whole number"),
        (("phases", "--set", "iterations=2026-01-01"), "not '2026-01-01'"),
        (("phases", "--set", "quantum_s=soon"), "quantum_s must be seconds, not 'soon'"),
        (("phases", "--set", "quantum_s=-1"), "quantum_s must be seconds, not -1"),
        (("phases", "--set", "quantum_s=nan"), "quantum_s must be seconds, not nan"),
        (("phases", "--set", "classical_s=1,x"), "classical_s must be seconds, not 'x'"),
        (("phases", "--set", "classical_s=[]"), "classical_s must name at least one length"),
        (("failures.py:wide",), "task bad asks for 9 nodes and there are 3"),
        (("failures.py:no_qubo",), "a payload of type str is no QUBO"),
        (("failures.py:no_task",), "5 is no task"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("world", ["local", "virtual"])
def test_what_only_the_program_can_refuse(cli, words, said, world):
    write("failures.py", FAILURES)
    refused(cli("run", *words, "--world", world), "job j1", said)


def test_the_same_mistake_is_told_once_for_all_strategies(cli):
    said = cli("compare", "phases", "--world", "virtual", "--set", "iterations=0")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["x.gif", "x", "nowhere/x.svg"])
def test_a_timeline_that_cannot_be_drawn(cli, name):
    cli("run", "phases", "--world", "virtual", "-q")
    before = sorted(Path().iterdir())
    refused(cli("timeline", "-o", name))
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("command", ["resume", "show", "explain", "timeline"])
@pytest.mark.parametrize(
    ("replace", "by", "said"),
    [
        ('"version":1', '"version":2', "has version 2, this qloom reads up to 1"),
        ('"event":"job_submitted"', "garbage", "line 2"),
        ('"event":"job_submitted"', '"happening":"x"', "line 2"),
        ('"event":"run_started"', '"event":"other"', "holds no run"),
    ],
)
def test_a_journal_that_cannot_be_read(cli, command, replace, by, said):
    cli("run", "phases", "--world", "virtual", "-q")
    journal = home.find_run("last") / FILE_NAME
    damaged = journal.read_text().replace(replace, by)
    journal.write_text(damaged)
    refused(cli(command), said, str(journal))
    assert journal.read_text() == damaged, "nothing was changed"
    assert cli("runs", "--json").json[0]["state"] == "unreadable"


def test_another_users_journal_is_not_resumed(cli):
    if os.getuid() != 0:
        pytest.skip("NOT CHECKED: only root can give a file to another user")
    cli("run", "phases", "--world", "virtual", "-q")
    os.chown(home.find_run("last") / FILE_NAME, 65534, -1)
    refused(cli("resume"), "belongs to another user")
    refused(cli("run", "phases", "--world", "virtual", "--profile", "last"), "belongs to another user")
    assert len(home.run_names()) == 1
    assert cli("show", "-q").code == 0, "looking at it runs nothing of it"


@pytest.mark.parametrize("where", ["a file", "proc", "not allowed"])
def test_a_home_that_cannot_be_written(cli, monkeypatch, tmp_path, where):
    (tmp_path / "file").write_text("x")
    places = {"a file": tmp_path / "file" / "below", "proc": Path("/proc/qloom"), "not allowed": tmp_path / "locked"}
    if where == "not allowed":
        if os.getuid() == 0:
            pytest.skip("NOT CHECKED: permissions do not bind root")
        places[where].mkdir(mode=0o500)
    monkeypatch.setenv("QLOOM_HOME", str(places[where]))
    refused(cli("run", "phases", "--world", "virtual"), "cannot write to", "set QLOOM_HOME")
    refused(cli("compare", "phases", "--world", "virtual"), "cannot write to")
    refused(cli("resume"), "cannot read" if where == "a file" else "there is no run yet")


def test_a_read_only_file_system_as_home(tmp_path):
    """A real one: a bind mount in a mount namespace of its own."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("NOT CHECKED: only root can mount a read-only home")
    place = tmp_path / "home"
    (place / "runs").mkdir(parents=True)
    (place / "index.json").write_text("{}")
    mount = f'mount --bind "{place}" "{place}" && mount -o remount,bind,ro "{place}"'
    probe = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"NOT CHECKED: this machine does not allow it: {probe.stderr.strip()}")
    for words in ("run phases --world virtual", "runs --rebuild"):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{mount} && exec "{QLOOM}" {words}'],
            env={**os.environ, "QLOOM_HOME": str(place)},
            capture_output=True,
            text=True,
            check=False,
        )
        refused(Said(done.returncode, done.stdout, done.stderr), "Read-only file system")


def test_no_command_at_all_shows_the_help(cli):
    said = cli()
    assert "Usage: qloom" in said.out + said.err
    assert "Traceback" not in said.err


def test_whoever_reads_the_output_may_stop():
    script = f'"{QLOOM}" schema | head -c 1; echo " ${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert done.stdout.startswith("{")


def test_every_command_of_a_file_is_found_by_its_name():
    for file in dict.fromkeys(main.FILES.values()):
        assert set(main._commands_of(file)) == {name for name, own in main.FILES.items() if own == file}
