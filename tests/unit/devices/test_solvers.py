"""Solvers: exact ones agree with all assignments, circuits and pulse sequences run."""

from __future__ import annotations

import asyncio
import itertools
import json

import dimod
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qloom.devices.check import check_payload
from qloom.devices.factory import make_device
from qloom.devices.profiles import load_profile
from qloom.devices.solvers import exact, solve
from qloom.errors import PayloadError
from qloom.model import Payload
from qloom.payloads.openqasm3 import read_circuit
from qloom.payloads.qubo import read_qubo
from tests.unit.devices.examples import BELL, answer_of, finish, sequence

biases = st.one_of(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), st.floats(-3, 3))


@st.composite
def problems(draw, largest=7):
    size = draw(st.integers(1, largest))
    pairs = draw(st.lists(st.sampled_from([*itertools.combinations(range(size), 2), None]), unique=True))
    return {
        "linear": [[i, draw(biases)] for i in range(size)],
        "quadratic": [[*pair, draw(biases)] for pair in pairs if pair is not None],
        "offset": draw(biases),
    }


@settings(max_examples=60, deadline=None)
@given(problems())
def test_exact_is_exact(body):
    problem = read_qubo(body)
    lowest = min(problem.energy(values) for values in itertools.product((0, 1), repeat=len(problem.variables)))
    answer = exact.solve({"kind": "qubo", "body": body, "shots": 1, "options": {}})
    assert answer["optimal"]
    assert answer["energy"] == pytest.approx(lowest, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_the_integer_program_agrees_with_all_assignments(body):
    pytest.importorskip("scipy", reason="NOT RUN: scipy is not installed (pip install 'qloom[exact]')")
    problem = read_qubo(body)
    found = exact._integer_program(problem, 20.0)
    assert problem.energy(found) == pytest.approx(problem.energy(exact._all_assignments(problem)), abs=1e-5)


def test_a_problem_with_many_cliques_is_solved_to_the_proof():
    pytest.importorskip("scipy", reason="NOT RUN: scipy is not installed (pip install 'qloom[exact]')")
    groups = [range(start, start + 6) for start in range(0, 120, 5)]
    pairs = dict.fromkeys(pair for group in groups for pair in itertools.combinations(group, 2))
    body = {"linear": [[i, -1 - (i * 37 % 11) / 20] for i in range(121)],
            "quadratic": [[u, v, 3.0] for u, v in pairs], "offset": 0.0}  # fmt: skip
    best = exact.solve({"kind": "qubo", "body": body, "shots": 1, "options": {"time_limit_s": 20}})
    chosen = [name for name, value in best["values"] if value]
    assert all((u, v) not in pairs for u, v in itertools.combinations(chosen, 2))
    assert (
        best["energy"] <= solve("annealing", {"kind": "qubo", "body": body, "shots": 50, "seed": 1})["energy"] + 1e-9
    )


@settings(max_examples=60, deadline=None)
@given(problems(6), st.sampled_from(["BINARY", "SPIN"]))
def test_dimod_models_are_read_as_dimod_means_them(body, kind):
    quadratic = {(u, v): bias for u, v, bias in body["quadratic"]}
    model = dimod.BinaryQuadraticModel(dict(body["linear"]), quadratic, body["offset"], kind)
    problem = read_qubo(json.loads(json.dumps(model.to_serializable(use_bytes=False))))
    for values in itertools.product((0, 1), repeat=len(problem.variables)):
        meant = values if kind == "BINARY" else [2 * value - 1 for value in values]
        energy = model.energy(dict(zip(problem.variables, meant, strict=True)))
        assert problem.energy(values) == pytest.approx(energy, abs=1e-9)


@pytest.mark.slow
def test_qaoa_runs_circuits_and_qubos():
    pytest.importorskip("qiskit_aer", reason="NOT RUN: qiskit-aer is not installed (pip install 'qloom[qaoa]')")

    async def go():
        device = make_device({"kind": "qaoa", "set_up_s": 0, "per_shot_s": 0})
        two = Payload("openqasm3", [BELL, BELL], shots=200, options={"seed": 1})
        id = await device.start("bell", two)
        _, status = await finish(device, id)
        assert status.state == "done", status
        first, second = await answer_of(device, id)
        assert set(first["counts"]) == {"00", "11"}
        assert first != second, "equal circuits of a task draw separately"
        assert (sum(first["counts"].values()), first["registers"]) == (200, [["c", 2]])
        size = 6
        body = {"linear": [[f"v{i}", -1.0 - i / 10] for i in range(size)], "offset": 0.0,
                "quadratic": [[f"v{i}", f"v{i + 1}", 3.0] for i in range(size - 1)]}  # fmt: skip
        id = await device.start("qubo", Payload("qubo", body, shots=500))
        assert (await finish(device, id))[1].state == "done"
        best = exact.solve({"kind": "qubo", "body": body, "shots": 1})
        answer = await answer_of(device, id)
        assert answer["energy"] == pytest.approx(best["energy"])
        id = await device.start("bad", Payload("openqasm3", BELL.replace("cx q[0], q[1]", "cx q[0]")))
        _, status = await finish(device, id)
        assert (status.state, status.fault) == ("failed", False)
        assert "cannot be read" in status.error
        await device.close()

    asyncio.run(go())


def test_qiskit_writes_circuits_that_pass():
    pytest.importorskip("qiskit", reason="NOT RUN: qiskit is not installed (pip install 'qloom[qaoa]')")
    from qiskit import QuantumCircuit, qasm3

    circuit = QuantumCircuit(3, 3)
    circuit.h(0)
    circuit.rzz(0.3, 0, 1)
    circuit.ccx(0, 1, 2)
    circuit.sx(2)
    with circuit.if_test((circuit.clbits[0], 1)):
        circuit.x(1)
    circuit.measure(range(3), range(3))
    assert read_circuit(qasm3.dumps(circuit)).size == 3


@pytest.mark.slow
def test_pulser_runs_sequences():
    reason = "NOT RUN: pulser-simulation is not installed (pip install 'qloom[pulser]')"
    pytest.importorskip("pulser_simulation", reason=reason)

    async def go():
        device = make_device({"kind": "pulser", "per_shot_s": 0})
        half_turn = sequence(2)
        half_turn["operations"][0]["amplitude"]["value"] = 3.1415926 / 0.5
        half_turn["register"][1]["x"] = 40.0  # too far apart to block each other: both are excited
        id = await device.start("pi", Payload("pulser", half_turn, shots=100))
        _, status = await finish(device, id)
        assert status.state == "done", status
        answer = await answer_of(device, id)
        assert answer["atoms"] == ["q0", "q1"]
        assert answer["counts"]["11"] > 90
        blocked = sequence(2)
        blocked["operations"][0]["amplitude"]["value"] = 3.1415926 / 0.5
        id = await device.start("blocked", Payload("pulser", json.dumps(blocked), shots=100))
        assert (await finish(device, id))[1].state == "done"
        assert (await answer_of(device, id))["counts"].get("11", 0) < 5
        await device.close()

    asyncio.run(go())


def test_pulser_writes_sequences_that_pass_and_shows_what_is_local():
    pulser = pytest.importorskip("pulser", reason="NOT RUN: pulser is not installed (pip install 'qloom[pulser]')")
    register = pulser.Register({f"q{i}": (6.0 * i, 0.0) for i in range(3)})
    device = load_profile("leonardo-pasqal")
    for local in (False, True):
        written = pulser.Sequence(register, pulser.DigitalAnalogDevice)
        written.declare_channel("g", "rydberg_global")
        if local:
            written.config_detuning_map(register.define_detuning_map({"q0": 0.3, "q1": 0.7}), "dmm_0")
        written.add(pulser.Pulse.ConstantPulse(500, 3.0, 0.0, 0.0), "g")
        written.measure("ground-rydberg")
        payload = Payload("pulser", written.to_abstract_repr())
        if local:
            with pytest.raises(PayloadError, match="no local addressing"):
                check_payload(device, payload)
        else:
            check_payload(device, payload)
