"""The program in real and virtual worlds: the same result under every strategy, with and without spare work."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

import qloom
from qloom.clustering import program
from qloom.strategies import STRATEGIES

SETTINGS = {"blobs": 600, "iterations": 3, "threshold": 1.0, "quantum_s": 0.5, "plot": ""}


def result_of(strategy, world="virtual", **settings):
    outcome = qloom.run(
        program,
        parameters=SETTINGS | settings,
        strategy=strategy,
        world=world,
        seed=3,
        site=qloom.Site(nodes=3),
        in_memory=world == "virtual",
    )
    result = dict(outcome.result)
    result.pop("files", None)  # virtual time writes none
    return result


@pytest.fixture(scope="module")
def expected():
    return result_of("offload")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_result_under_every_strategy(expected, strategy):
    assert result_of(strategy) == expected


@pytest.mark.parametrize("strategy", ["offload", "malleable"])
def test_the_same_result_without_spare_work(expected, strategy):
    assert result_of(strategy, speculate=False) == expected


def test_threads_change_nothing_in_virtual_time(expected):
    assert result_of("offload", threads=2) == expected


@pytest.mark.slow
def test_the_same_result_on_this_machine(expected, tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path))
    assert result_of("offload", world="local", quantum_s=0.01) == expected


@pytest.mark.slow
def test_the_same_result_when_resumed_after_a_kill(expected, tmp_path, monkeypatch):
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))
    source = tmp_path / "aggregate.py"
    source.write_text("from qloom.clustering import program\n")
    settings = SETTINGS | {"quantum_s": 0.3}
    start = f"import qloom; qloom.run({str(source)!r}, seed=3, site=qloom.Site(nodes=3), parameters={settings!r})"
    driver = subprocess.Popen(
        [sys.executable, "-c", start], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        until(lambda: ended_tasks(tmp_path) >= 7)
    finally:
        driver.kill()
        driver.wait()
    before = ended_tasks(tmp_path)
    outcome = qloom.resume("last")
    result = dict(outcome.result)
    result.pop("files")
    assert result == expected
    assert ended_tasks(tmp_path) - before < before + 7  # what the journal held was not run again


def ended_tasks(folder):
    return sum(path.read_text().count('"task_ended"') for path in folder.glob("home/runs/*/*.jsonl"))


def until(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")
