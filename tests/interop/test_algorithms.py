"""Algorithms that nobody here wrote run through the objects of a job as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[qiskit]'")
pytest.importorskip("qiskit_algorithms", reason="NOT TESTED: pip install qiskit-algorithms")

import qloom
from qloom.errors import InputError
from qloom.journal.events import QuantumEnded

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "textbook"))
import algorithms

SITE = qloom.Site(nodes=1, qpus=(qloom.Qpu("gates", "photonic"),))
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in qiskit-algorithms


def run(name, **plan):
    return qloom.run(getattr(algorithms, name), site=SITE, in_memory=True, **plan)


@pytest.mark.parametrize(("name", "expected"), [("grover", "11"), ("phase", 0.25), ("vqe", -1.857)])
def test_in_virtual_time(name, expected):
    outcome = run(name, world="virtual")
    assert outcome.result == (expected if isinstance(expected, str) else pytest.approx(expected, abs=0.05))
    assert any(isinstance(event, QuantumEnded) for event in outcome.events)


def test_an_optimiser_that_draws_numbers_takes_the_same_path_again():
    first, again = (run("vqe_spsa", world="virtual", parameters={"maxiter": 2}).result for _ in range(2))
    assert first == again


def test_those_that_sample_in_a_thread_run_in_real_time():
    assert run("qaoa").result == -1.5
    with pytest.raises(InputError, match=r"this thread cannot make calls .* in virtual time .*--world local"):
        _ = run("qaoa", world="virtual").result


@pytest.mark.slow
def test_another_one_of_them():
    assert run("sampling_vqe").result == -1.5
