"""Somebody else's package with a strategy, a world, a device, a policy and an engine, used from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.broker.processes import toml

MODULE = '''
from qloom.devices.factory import make_device
from qloom.lab.schedulers.policy import Fcfs
from qloom.strategies.static import Offload
from qloom.worlds.virtual.entry import VirtualEntry


class Patient(Offload):
    """Offload by another name."""


class LastOne(Fcfs):
    """First come, first served by another name."""


def make_quiet(config):
    """An annealer that notes where it is from."""
    return make_device({"name": "quiet", "kind": "annealing", "set_up_s": 0.01, "notes": "by qloom-extra"})


def run_elsewhere(plan, *, listener=None):
    from qloom import InputError

    raise InputError(f"asked to run {plan.strategy} elsewhere")


class Wonderland(VirtualEntry):
    """Virtual time by another name."""


wonderland = Wonderland()
not_a_strategy = 3
'''
ENTRY_POINTS = """
[qloom.strategies]
patient = qloom_extra:Patient
offload = qloom_extra:Patient
number = qloom_extra:not_a_strategy
gone = qloom_missing:Strategy

[qloom.worlds]
wonderland = qloom_extra:wonderland

[qloom.devices]
quiet = qloom_extra:make_quiet

[qloom.policies]
last-one = qloom_extra:LastOne

[qloom.engines]
elsewhere = qloom_extra:run_elsewhere
"""
PHASES = ("--set", "iterations=2", "--nodes", "2")


@pytest.fixture
def package(tmp_path):
    """A folder with the package, as pip would have left it."""
    (tmp_path / "qloom_extra.py").write_text(MODULE)
    information = tmp_path / "qloom_extra-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: qloom-extra\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


@pytest.fixture
def qloom(package):
    def typed(*words, code=0, **environment):
        said = subprocess.run(
            [sys.executable, "-m", "qloom", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=package,
            env={**os.environ, "PYTHONPATH": str(package), **environment},
        )
        assert said.returncode == code, said.stderr
        return said.stdout if code == 0 else said.stderr

    return typed


def test_they_are_listed_with_their_package_and_what_is_wrong(qloom):
    rows = {(row["kind"], row["name"], row["from"]): row["problem"] for row in json.loads(qloom("plugins", "--json"))}
    ours = {key[:2]: problem for key, problem in rows.items() if key[2] == "qloom-extra 1.0"}
    assert {name for (kind, name), problem in ours.items() if not problem} == {
        *("patient", "wonderland", "quiet", "last-one", "elsewhere")
    }
    assert ours["strategy", "offload"] == "another one has this name"
    assert "not a subclass of qloom.strategies.base.Strategy" in ours["strategy", "number"]
    assert "ModuleNotFoundError: No module named 'qloom_missing'" in ours["strategy", "gone"]
    assert rows["strategy", "offload", "qloom"] == ""
    assert "qloom-extra" in qloom("plugins")


def test_a_strategy(qloom):
    rows = json.loads(
        qloom("compare", "phases", "--strategies", "patient,offload", "--world", "virtual", "--json", *PHASES)
    )
    patient, offload = ({**row, "strategy": "", "run": ""} for row in rows)
    assert patient == offload


def test_a_world(qloom):
    assert '"world": "wonderland"' in qloom("run", "phases", "--world", "wonderland", "--json", *PHASES)


def test_a_policy(qloom):
    theirs, ours = (
        qloom("load", "run", "--policy", name, "--jobs", "50", "--nodes", "4") for name in ("last-one", "fcfs")
    )
    assert theirs == ours


def test_an_engine(qloom):
    assert "asked to run workflow elsewhere" in qloom(
        "run", "phases", "--strategy", "workflow", "--engine", "elsewhere", code=2
    )


@pytest.mark.slow
def test_a_device(qloom, package, tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    address = f"unix:{directory / 'b.sock'}"
    values = {"listen": [address], "store": str(directory / "broker.db"), "devices": [{"kind": "quiet"}]}
    config = directory / "broker.toml"
    config.write_text(toml(values))
    problem = package / "problem.json"
    problem.write_text(json.dumps({"linear": {"a": -1.0, "b": 1.0}, "quadratic": []}))
    broker = subprocess.Popen(
        [sys.executable, "-m", "qloom", "broker", "serve", "--config", str(config)],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(directory / "b.sock", broker)
        answer = qloom("qpu", "submit", "problem.json", "--device", "quiet", "--wait", QLOOM_BROKER=address)
        assert '["a", 1]' in answer
    finally:
        broker.terminate()
        broker.wait(20)


def wait_for(path: Path, process: subprocess.Popen) -> None:
    for _ in range(600):
        if path.exists():
            return
        assert process.poll() is None, "the broker has ended"
        time.sleep(0.05)
    raise AssertionError("the broker did not start")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "plug-in 'gone' of qloom-extra 1.0 cannot be imported: ModuleNotFoundError: No module named"),
        ("number", "strategy 'number' of qloom-extra 1.0: qloom_extra:not_a_strategy is not a subclass of"),
        ("patent", "unknown strategy 'patent' (did you mean patient? choose one of coschedule, offload,"),
    ],
)
def test_a_broken_one_is_one_line_and_breaks_nothing_else(name, said, qloom):
    message = qloom("run", "phases", "--strategy", name, "--world", "virtual", code=2)
    assert said in message
    assert message.count("\n") == 1
    qloom("run", "phases", "--strategy", "offload", "--world", "virtual", *PHASES)


def test_names_of_qloom_s_own_are_found_without_a_search(package):
    program = textwrap.dedent("""
        import sys
        from qloom import plugins
        from qloom.cli import running, load
        from qloom.strategies import STRATEGIES, parse_strategy
        plugins.announced = None
        parse_strategy("offload")
    """)
    subprocess.run([sys.executable, "-c", program], check=True)
