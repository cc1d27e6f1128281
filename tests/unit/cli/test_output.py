"""What the command line prints: results, tables, JSON, pictures and help."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from qloom.cli import main
from qloom.journal import home
from qloom.journal.file import FILE_NAME
from qloom.version import __version__
from tests.unit.cli.typed import COMMANDS, EVERY_STRATEGY, QLOOM, QUICK, ROW, Said, shell


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
    every = (*EVERY_STRATEGY, "malleable+share")
    long_run = ("--set", "quantum_s=1000000", "--nodes", 40)
    shown = [
        cli("compare", "phases", "--world", "virtual", "--strategies", ",".join(every)).out,
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
    assert sum(len(line.split()) == 7 and line.split()[0] in every for line in table) == len(every)
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
