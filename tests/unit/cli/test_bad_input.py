"""One clear line for bad input, and nothing is written."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from qloom.journal import home
from qloom.journal.file import FILE_NAME
from qloom.slurm.commands import PROGRAMS as PROGRAMS_OF_SLURM
from qloom.worlds.slurm import driver_job
from tests.unit.cli.typed import FAILURES, QLOOM, Said, refused, write


@pytest.mark.parametrize(
    ("complaint", "hint"),
    [
        ("fatal: Could not establish a configuration source", "log in to a cluster, set SLURM_CONF, or try: qloom"),
        ("error: Unable to contact slurm controller (connect failure)", "(scontrol ping)"),
    ],
)
def test_without_a_cluster_it_is_said_how_to_get_one(cli, monkeypatch, tmp_path, complaint, hint):
    for program in PROGRAMS_OF_SLURM:
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{program}: {complaint}' >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    refused(cli("run", "phases", "--world", "slurm"), "Slurm does not answer", hint)


def test_a_submitted_run_is_explained_at_once_where_its_cluster_is_gone(monkeypatch, tmp_path):
    for program in PROGRAMS_OF_SLURM:
        (tmp_path / program).write_text("#!/bin/sh\nsleep 100\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    said = driver_job.look("7")
    assert said.stage == "unknown"
    assert "SLURM_CONF names" in said.words


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
    (("run", "phases", "--strategy", "magic"), ["unknown strategy 'magic'", "malleable"]),
    (("run", "phases", "--strategy", "maleable"), ["'maleable' (did you mean malleable?", "NAME+share", "auto"]),
    (("run", "phases", "--strategy", ""), ["unknown strategy ''"]),
    (("run", "phases", "--strategy", "malleable+foo"), ["no way to hold a QPU is called 'foo'", "whole, share"]),
    (("compare", "phases", "--strategies", "offload,magic"), ["unknown strategy 'magic'"]),
    (("compare", "phases", "--strategies", ","), ["no strategy was named"]),
    (("run", "phases", "--world", "mars"), ["unknown world 'mars'", "local, virtual"]),
    (("run", "phases", "--jobs", "0"), ["--jobs must be at least 1"]),
    (("run", "phases", "--jobs", "two"), ["--jobs"]),
    (("run", "phases", "--nodes", "0"), ["at least one node"]),
    (("run", "phases", "--nodes", "-2"), ["at least one node"]),
    (("run", "phases", "--seed", "x"), ["--seed"]),
    (("run", "phases", "--set", "iterations"), ["'iterations' is not a setting", "--set name=value"]),
    (("run", "phases", "--set", "=1"), ["'=1' is not a setting"]),
    (("run", "phases", "--set", "a b=1"), ["is not a setting"]),
    (
        ("run", "phases", "--set", "iteration=1"),
        ["phases has no parameter 'iteration' (did you mean iterations?", "it takes: classical_s"],
    ),
    (("run", "phases", "--option", "patience_s=1"), ["no option 'patience_s'"]),
    (("run", "phases", "--strategy", "malleable", "--option", "patience_s=long"), ["must be a number"]),
    (("run", "phases", "--strategy", "malleable", "--option", "min_nodes=9"), ["min_nodes is 9", "1 to 3"]),
    (("run", "phases", "--qpu", "q"), ["'q' is not a QPU", "NAME:TECHNOLOGY"]),
    (("run", "phases", "--qpu", "q:magic"), ["no QPU technology is called 'magic'", "annealer"]),
    (("run", "phases", "--qpu", "q:annealer:asleep"), ["is not a QPU"]),
    (("run", "phases", "--qpu", "q:annealer", "--qpu", "q:photonic"), ["two QPUs have the same name"]),
    (("run", "phases", "--site", "key.toml"), ["key.toml", "nodez is not a known key (did you mean nodes?)"]),
    (("run", "phases", "--site", "type.toml"), ["type.toml", "nodes", "integer"]),
    (("run", "phases", "--site", "negative.toml"), ["at least one node"]),
    (("run", "phases", "--site", "qpukey.toml"), ["technologie is not a known key (did you mean technology?)"]),
    (("run", "phases", "--site", "qputype.toml"), ["no QPU technology is called 'magic'"]),
    (("run", "phases", "--site", "shares.toml"), ["shares and lanes must be at least 1"]),
    (("run", "phases", "--site", "twice.toml"), ["two QPUs have the same name"]),
    (("run", "phases", "--site", "broken.toml"), ["broken.toml is not TOML"]),
    (("run", "phases", "--site", "binary.toml"), ["binary.toml is not TOML"]),
    (("run", "phases", "--site", "missing.toml"), ["cannot read the site file missing.toml"]),
    (("run", "phases", "--site", "."), ["cannot read the site file ."]),
    (("run", "phases", "--overheads", "overheads.toml"), ["overheads are seconds", "negative"]),
    (
        ("run", "phases", "--overheads", "unknown.toml"),
        ["overheads.tock_s is not a known key", "did you mean tick_s?"],
    ),
    (("run", "phases", "--profile", "last"), ["there is no run yet"]),
    (("run", "phases", "--world", "virtual", "--profile", "nothing"), ["there is no run 'nothing'"]),
    (("run", "nothing"), ["no program is called 'nothing'", "phases"]),
    (("run", "missing.py"), ["missing.py: No such file"]),
    (("run", "missing.toml"), ["missing.toml: No such file"]),
    (("run", "syntax.py"), ["syntax.py cannot be imported: SyntaxError"]),
    (("run", "none.py"), ["none.py has no function `program(job, ...)`"]),
    (("run", "none.py:other"), ["has no function `other(job, ...)`"]),
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
    (("run", "phases", "--slurm", "acount=us"), ["slurm.acount is not a known key (did you mean account?)"]),
    (("frobnicate",), ["unknown command 'frobnicate'", "qloom --help"]),
    (("rum", "phases"), ["unknown command 'rum' (did you mean run?)"]),
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
        (("phases", "--set", "speculate=no"), "speculate is true or false, not 'no'"),
        (("phases", "--set", "jitter=-1"), "jitter must be a relative spread of at least 0, not -1"),
        (("phases", "--set", "iterations=2026-01-01"), "not '2026-01-01'"),
        (("phases", "--set", "quantum_s=soon"), "quantum_s must be seconds, not 'soon'"),
        (("phases", "--set", "quantum_s=-1"), "quantum_s must be seconds, not -1"),
        (("phases", "--set", "quantum_s=nan"), "quantum_s must be seconds, not nan"),
        (("phases", "--set", "classical_s=1,x"), "classical_s must be seconds, not 'x'"),
        (("phases", "--set", "classical_s=[]"), "classical_s must name at least one length"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_values_of_a_built_in_program_are_refused_before_anything_is_written(cli, qloom_home, words, said):
    refused(cli("run", *words, "--world", "virtual"), said)
    assert list(qloom_home.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("failures.py:wide",), "task bad asks for 9 nodes and there are 3"),
        (("failures.py:no_circuit",), "no QPU here takes a payload of kind 'openqasm3'"),
        (("failures.py:no_task",), "expected a task, got 5"),
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
