"""PennyLane's device of a job: circuits that come together are one phase, gradients included."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pennylane", reason="NOT TESTED: pip install 'qloom[pennylane]'")
pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[pennylane]'")

import numpy as np
import pennylane as qml

import qloom
from qloom.errors import QloomError
from qloom.journal.events import QuantumQueued
from qloom.strategies import STRATEGIES

SITE = qloom.Site(nodes=2, qpus=(qloom.Qpu("gates", "photonic"),))
HELMI = qloom.Site(nodes=1, qpus=(qloom.Qpu("helmi", profile="helmi"),))


def run(program, **plan):
    return qloom.run(program, **{"world": "virtual", "in_memory": True, "site": SITE, "parameters": {}, **plan})


def tasks(outcome):
    return len([event for event in outcome.events if isinstance(event, QuantumQueued)])


def refusal(program, **plan):
    with pytest.raises(QloomError) as refused:
        assert run(program, **plan).result is None
    assert "\n" not in str(refused.value)
    return re.sub(r" \(\w+\.py, line \d+\)", "", str(refused.value))  # the line of the program


def chain(device):
    @qml.qnode(device, diff_method="parameter-shift")
    def circuit(x):
        qml.RX(x[0], 0)
        qml.IsingXX(x[1], wires=[0, 1])
        qml.CNOT([0, 1])
        return qml.expval(qml.Z(0) @ qml.Z(1))

    return circuit


def gradient(job):
    x = qml.numpy.array([0.4, 0.3], requires_grad=True)
    return qml.grad(qml.set_shots(chain(job.pennylane_device(wires=2)), 2000))(x).tolist()


def test_a_parameter_shift_gradient_is_one_task_beside_the_value():
    outcome = run(gradient)
    assert np.allclose(outcome.result, [0.0, -np.sin(0.3)], atol=0.06)
    assert tasks(outcome) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_result_under_every_strategy_in_virtual_time(strategy):
    assert run(gradient, strategy=strategy).result == run(gradient).result


def test_and_on_this_machine():
    assert run(gradient, world="local", strategy="weave").result == run(gradient).result


def test_measurements_are_pennylanes_and_share_a_task():
    def program(job):
        @qml.set_shots(400)
        @qml.qnode(qml.device("qloom", wires=["a", "b", "c"]))
        def circuit():
            qml.H("a")
            qml.CNOT(["a", "b"])
            qml.adjoint(qml.S("c"))
            qml.Rot(0.1, 0.2, 0.3, wires="c")
            return (
                qml.expval(qml.X("a") @ qml.X("b")),
                qml.var(qml.Z("a")),
                qml.probs(wires=["a", "b"]),
                qml.counts(wires="b"),
                qml.sample(qml.Z("b")),
            )

        return circuit()

    outcome = run(program)
    both, variance, probabilities, counts, samples = outcome.result
    assert (both, tasks(outcome)) == (1.0, 1)
    assert variance == pytest.approx(1.0, abs=0.05)
    assert probabilities.tolist()[1:3] == [0.0, 0.0]
    assert sum(counts.values()) == len(samples) == 400


def test_shot_vectors_are_fair_parts_of_one_task():
    def program(job):
        @qml.set_shots([100, 300])
        @qml.qnode(job.pennylane_device(wires=1))
        def circuit():
            qml.H(0)
            return qml.expval(qml.Z(0))

        return circuit()

    outcome = run(program)
    assert tasks(outcome) == 1
    assert all(abs(value) < 0.4 for value in outcome.result)


def test_circuits_are_compiled_to_a_machine_that_does_not_compile():
    assert np.allclose(run(gradient, site=HELMI).result, [0.0, -np.sin(0.3)], atol=0.06)


def without_shots(job):
    return chain(job.pennylane_device(wires=2))([0.1, 0.2])


def with_a_state(job):
    @qml.set_shots(10)
    @qml.qnode(job.pennylane_device(wires=1))
    def circuit():
        return qml.state()

    return circuit()


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (without_shots, "a QPU measures with shots, and this QNode has none (qml.set_shots(qnode, 1000), or"),
        (with_a_state, "not accepted"),
        (lambda job: qml.device("qloom", wires=1, shots=5), "a device has no shots (give them to the QNode"),
    ],
    ids=["analytic", "state", "device"],
)
def test_what_is_refused_is_said_in_one_line(program, line):
    assert line in refusal(program)


def test_an_async_program_is_shown_the_way():
    async def program(job):
        job.pennylane_device(wires=1)

    assert "a PennyLane device waits, which an async program must not" in refusal(program)
