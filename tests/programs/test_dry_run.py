"""A dry run says what the first iteration of a program asks for, and leaves nothing behind."""

from __future__ import annotations

import json

import pytest

from qloom.journal import home
from tests.unit.cli.conftest import cli  # noqa: F401

PROGRAM = """
from qloom import delay, task

@task(expected_s=2.0)
def prepare(x):
    print("computed", x)
    return x

def program(job):
    for iteration in range(1000):
        job.classical(prepare(1), prepare(2))
        job.quantum({("x", "x"): -1.0}, shots=50, expected_s=3.0)

async def awaited(job):
    for iteration in range(1000):
        await job.classical(prepare(1), prepare(2))
        await job.quantum({("x", "x"): -1.0}, shots=50, expected_s=3.0)

def classical_only(job):
    job.classical(prepare(1))

def fails(job):
    job.quantum([])

CIRCUIT = "OPENQASM 3.0; include \\"stdgates.inc\\"; qubit[1] q; bit[1] c; x q[0]; c[0] = measure q[0];"

async def circuits(job):
    await job.quantum([CIRCUIT, CIRCUIT, CIRCUIT], shots=20)
"""


@pytest.fixture(autouse=True)
def _program(tmp_path, monkeypatch, qloom_home):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)


def test_the_first_iteration_is_counted_and_nothing_is_left(cli, capfd):  # noqa: F811
    said = cli("run", "program.py", "--dry-run")
    assert said.code == 0, said.err
    assert "first iteration: 2 tasks, 1 quantum call: 50 shots, 3.0 QPU-seconds" in said.out
    assert "coschedule" in said.out
    assert said.out.count("computed 1") == 1  # whatever the number of strategies
    assert not home.run_names()


def test_jobs_are_counted_together(cli):  # noqa: F811
    found = json.loads(cli("run", "program.py:awaited", "--dry-run", "--json", "--jobs", "2").out.splitlines()[-1])
    assert found["first_iteration"] == {"tasks": 4, "quantum_calls": 2, "circuits": 0, "shots": 100, "qpu_s": 6.0}
    held = {row["strategy"]: row["qpu_s_held"] for row in found["strategies"]}
    assert held["coschedule"] > held["offload"] == 6.0


def test_circuits_that_share_a_task(cli):  # noqa: F811
    pytest.importorskip("qiskit_aer")
    said = cli("run", "program.py:circuits", "--dry-run", "-q", "--qpu", "gates:superconducting")
    assert "0 tasks, 1 quantum call: 3 circuits, 60 shots" in said.out, said.err


def test_a_program_without_quantum_calls(cli):  # noqa: F811
    assert "1 task and no quantum call" in cli("run", "program.py:classical_only", "--dry-run", "-q").out


def test_what_is_wrong_with_a_program_is_said(cli):  # noqa: F811
    said = cli("run", "program.py:fails", "--dry-run", "-q")
    assert said.code == 2
    assert "the list of circuits is empty" in said.err
