"""`qloom broker` and `qloom qpu`: tables, JSON, quiet, and one line for what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from qloom.broker.auth.tokens import TokenFile
from qloom.broker.problems import NoBroker, NotFound
from qloom.cli import broker as broker_commands
from qloom.cli import qpu as qpu_commands
from qloom.errors import InputError, PayloadError
from tests.broker.processes import Service

app = typer.Typer()
broker_commands.add_to(app)
qpu_commands.add_to(app)


def qloom(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False, env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    one = Service(
        tmp_path_factory.mktemp("service"),
        "tests.broker.plain",
        devices=[{"kind": "annealing", "name": "ann"}, {"kind": "exact", "name": "exact"}],
    )
    one.start()
    yield one
    assert one.stop() == 0


@pytest.fixture
def connected(service, monkeypatch, tmp_path):
    monkeypatch.setenv("QLOOM_BROKER", service.address)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").write_text(json.dumps({"linear": [["x", -1.0]], "quadratic": [], "offset": 0.0}))
    return service


def test_looking_at_the_qpus(connected):
    assert [row["name"] for row in json.loads(qloom("qpu", "list", "--json"))] == ["ann", "exact"]
    assert qloom("qpu", "list", "--quiet").split() == ["ann", "exact"]
    table = qloom("qpu", "list")
    assert "annealer" in table
    assert "wait s  promised s" in table
    assert qloom("qpu", "status", "ann", "--quiet").strip() == "idle"
    with pytest.raises(NotFound, match="no task or QPU is called nothing"):
        qloom("qpu", "status", "nothing")


def test_a_task_from_the_command_line(connected):
    answer = json.loads(qloom("qpu", "submit", "p.json", "--wait"))
    assert answer["values"] == [["x", 1]]
    assert qloom("broker", "drain", "ann").strip() == "ann is drained"
    assert "drained" in qloom("qpu", "list")
    first = qloom("qpu", "submit", "p.json", "--device", "ann", "--quiet").strip()
    told = qloom("qpu", "submit", "p.json", "--device", "ann")
    assert "1 before it, the QPU is not available now" in told
    assert first in qloom("qpu", "queue")
    assert json.loads(qloom("qpu", "status", first, "--json"))["position"] == 0
    for task in qloom("qpu", "queue", "--quiet").split():
        assert qloom("qpu", "cancel", task).strip() == f"{task} is cancelled"
    assert qloom("broker", "resume", "ann").strip() == "ann is idle"
    assert qloom("broker", "shares", "ann", "3").strip() == "ann offers 3 shares; promised wait: none"
    assert qloom("broker", "reconcile").strip() == "the books agree"


@pytest.mark.timeout(60)
def test_waiting_says_what_for(connected, tmp_path):
    qloom("broker", "drain", "ann")
    words = [sys.executable, "-m", "qloom", "qpu", "submit", "p.json", "--device", "ann", "--wait"]
    environment = {**os.environ, "QLOOM_STALL_S": "0.5"}
    waiting = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert waiting.stderr is not None
    try:
        assert waiting.stderr.readline().endswith(" on ann: 0 before it, the QPU is not available now\n")
    finally:
        qloom("broker", "resume", "ann")
        answer, _ = waiting.communicate()
    assert json.loads(answer)["values"] == [["x", 1]]


def test_what_goes_wrong_is_one_line(connected, tmp_path, monkeypatch):
    (tmp_path / "bad.json").write_text('{"linear": 1}')
    with pytest.raises(PayloadError, match="must be a list"):
        qloom("qpu", "submit", "bad.json")
    with pytest.raises(InputError, match="what kind of payload"):
        qloom("qpu", "submit", "p.txt")
    with pytest.raises(InputError, match="cannot read"):
        qloom("qpu", "submit", "none.json")
    with pytest.raises(InputError, match="no QPU is called 'x'"):
        qloom("qpu", "submit", "p.json", "--device", "x")
    monkeypatch.setenv("QLOOM_BROKER", f"unix:{tmp_path}/none.sock")
    with pytest.raises(NoBroker, match="no broker answers"):
        qloom("qpu", "list")


def test_tokens_are_made_once_and_revoked(tmp_path):
    config = tmp_path / "broker.toml"
    config.write_text(f'store = "{tmp_path}/b.db"\n[projects.physics]\n')
    token = qloom("broker", "token", "ann", "--project", "physics", "--config", str(config)).strip()
    tokens = TokenFile(tmp_path / "tokens.json")
    assert tokens.caller(token).projects == ("physics",)
    private = tmp_path / "token"
    qloom("broker", "token", "bob", "--admin", "--output", str(private), "--config", str(config))
    assert private.stat().st_mode & 0o777 == 0o600
    assert tokens.caller(private.read_text().strip()).admin
    with pytest.raises(InputError, match="cannot write"):
        qloom("broker", "token", "bob", "--admin", "--output", str(private), "--config", str(config))
    with pytest.raises(InputError, match="unknown project chemistry"):
        qloom("broker", "token", "ann", "--project", "chemistry", "--config", str(config))
    with pytest.raises(InputError, match="needs a project"):
        qloom("broker", "token", "ann", "--config", str(config))
    assert qloom("broker", "token", "ann", "--revoke", "--config", str(config)).strip() == "1 revoked"
    assert tokens.caller(token) is None


def test_checking_a_store(tmp_path, connected):
    assert "is sound" in qloom("broker", "check", "--config", str(connected.directory / "broker.toml"))
    config = tmp_path / "broker.toml"
    config.write_text(f'store = "{tmp_path}/b.db"\ncolour = 1\n')
    with pytest.raises(InputError, match="colour is not a known key"):
        qloom("broker", "check", "--config", str(config))
    config.write_text(f'store = "{tmp_path}/b.db"\n')
    assert "not there yet" in qloom("broker", "check", "--config", str(config))
    (tmp_path / "b.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(InputError, match="cannot open the store"):
        qloom("broker", "check", "--config", str(config))
