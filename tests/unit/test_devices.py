"""Devices: emulated ones, vendors' through a stand-in of QRMI, and what they refuse."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dimod
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qloom.broker.devices.base import STATES, CannotTell, Description, Envelope, UnknownTask, Unreachable
from qloom.broker.devices.emulated import EmulatedDevice
from qloom.broker.devices.factory import KINDS, make_device
from qloom.broker.devices.faults import Faults
from qloom.broker.devices.lend import command
from qloom.broker.devices.payloads.check import check_envelope
from qloom.broker.devices.payloads.openqasm3 import read_circuit
from qloom.broker.devices.payloads.qubo import read_qubo
from qloom.broker.devices.profiles import load_profile, profile_names
from qloom.broker.devices.schema import describe, device_schema, schema_text
from qloom.broker.devices.solvers import exact, solve
from qloom.broker.devices.tokens import TokenLog
from qloom.broker.devices.windows import Window, left_s, window_from
from qloom.errors import InputError, PayloadError, QuantumFailed
from qloom.worlds.execution import anneal

ROOT = Path(__file__).resolve().parents[2]
QUBO = {"linear": [["a", -1.0], ["b", -2.0]], "quadratic": [["a", "b", 3.0]], "offset": 0.5}
BELL = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[2] q;\nbit[2] c;\nh q[0];\ncx q[0], q[1];\nc = measure q;\n'
FINAL = ("done", "failed", "cancelled")


def sequence(atoms=2, *, channel="rydberg_global", operations=(), **changes):
    """A Pulser sequence on a global channel, as Pulser writes it."""
    register = [{"name": f"q{i}", "x": 6.0 * i, "y": 0.0} for i in range(atoms)]
    constant = {"kind": "constant", "duration": 500}
    pulse = {"op": "pulse", "channel": "g", "protocol": "min-delay", "amplitude": {**constant, "value": 3.0},
             "detuning": {**constant, "value": 0.0}, "phase": 0.0, "post_phase_shift": 0.0}  # fmt: skip
    body = {"version": "1", "name": "test", "register": register, "channels": {"g": channel}, "variables": {},
            "operations": [pulse, *operations], "measurement": "ground-rydberg", "device": "MockDevice"}  # fmt: skip
    return {**body, **changes}


def delays(**options):
    """A device for delays: no solver is ever needed."""
    description = Description("test", "annealer", 100, ("qubo", "delay"), set_up_s=0.02, per_shot_s=1e-4)
    lanes = options.pop("lanes", 1)
    changed = {"lanes": lanes, "set_up_shared": options.pop("set_up_shared", False)}
    return EmulatedDevice(Description(**{**vars(description), **changed}), "annealing", **options)


def delay(seconds=0.05):
    return Envelope("delay", None, seconds=seconds)


async def finish(device, id):
    """The states that a task was told to be in, and the last status."""
    states = []
    while not states or states[-1] not in FINAL:
        status = await asyncio.wait_for(device.wait(id), 30)
        states.append(status.state)
    return states, status


def gone(pid, within_s=5.0):
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


# Emulated devices


def test_a_token_starts_one_task_and_states_come_in_order():
    async def go():
        device = make_device({"kind": "annealing", "set_up_s": 0.05, "per_shot_s": 0.0005})
        envelope = Envelope("qubo", QUBO, shots=100, options={"seed": 7})
        before = time.monotonic()
        id = await device.start("one", envelope)
        assert await device.start("one", envelope) == id
        assert await device.find("one") == id
        assert await device.find("two") is None
        states, status = await finish(device, id)
        assert [state for state in states if state != "vendor_queued"] == ["preparing", "executing", "done"]
        assert time.monotonic() - before >= 0.1
        assert status.billed_s == pytest.approx(0.1) == device.seconds(envelope)
        assert await device.tasks() == {id: status.billed_s}
        answer = await device.result(id)
        assert await device.wait(id) == status  # final: told as often as it is asked
        await device.close()
        return answer

    answer = asyncio.run(go())
    assert (dict(answer["values"]), answer["energy"]) == ({"a": 0, "b": 1}, -1.5)
    assert answer["shots"] == 100
    json.dumps(answer)


def test_annealing_gives_what_the_worlds_give():
    body = {"linear": [[i, -1.0] for i in range(12)], "offset": 0.0,
            "quadratic": [[i, j, 1.5] for i in range(12) for j in range(i) if (i * j) % 3 == 0]}  # fmt: skip
    sample = anneal(body, 20, 99)
    answer = solve("annealing", {"kind": "qubo", "body": body, "shots": 20, "seed": 99, "options": {}})
    assert dict(answer["values"]) == sample.values
    assert answer["energy"] == pytest.approx(sample.energy)


def test_lanes_queue_and_tasks_in_it_can_be_stopped():
    async def go():
        device = delays(lanes=2)
        ids = [await device.start(str(i), delay(0.1)) for i in range(4)]
        await asyncio.sleep(0.05)
        assert [(await device.wait(id)).state for id in ids] == ["executing", "executing", *["vendor_queued"] * 2]
        assert await device.state() == "busy"
        await device.stop(ids[2])
        ends = [(await finish(device, id))[1] for id in ids]
        assert [end.state for end in ends] == ["done", "done", "cancelled", "done"]
        assert ends[2].billed_s == 0
        await device.stop(ids[0])  # over: left as it is
        assert (await device.wait(ids[0])).state == "done"
        assert await device.state() == "idle"
        with pytest.raises(UnknownTask):
            await device.wait("other")
        with pytest.raises(QuantumFailed, match="cancelled"):
            await device.result(ids[2])
        await device.close()

    asyncio.run(go())


def test_a_stopped_task_takes_its_solver_with_it_and_the_device_goes_on():
    async def go():
        device = make_device({"kind": "annealing"})
        heavy = {"linear": [[i, -1.0] for i in range(1500)], "offset": 0.0,
                 "quadratic": [[i, i - j, 1.0] for i in range(1500) for j in range(1, min(i, 40))]}  # fmt: skip
        id = await device.start("heavy", Envelope("qubo", heavy, shots=100_000))
        ticks = 0
        while not (children := Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()):
            await asyncio.sleep(0.01)
        for _ in range(30):
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks == 30  # the loop was never blocked
        await device.stop(id)
        assert (await device.wait(id)).state == "cancelled"
        assert all(gone(int(pid)) for pid in children)
        _, status = await finish(device, await device.start("next", Envelope("qubo", QUBO, shots=5)))
        assert status.state == "done"
        await device.close()

    asyncio.run(go())


def test_a_solver_that_crashes_is_the_devices_fault_and_one_that_takes_too_long_too():
    async def go():
        device = make_device({"kind": "annealing", "faults": {"script": {"bad": "crash"}}})
        _, status = await finish(device, await device.start("bad", Envelope("qubo", QUBO)))
        assert (status.state, status.fault) == ("failed", True)
        assert "solver ended" in status.error
        _, status = await finish(device, await device.start("good", Envelope("qubo", QUBO)))
        assert status.state == "done"
        await device.close()
        hasty = make_device({"kind": "annealing", "solver_time_limit_s": 0.001})
        _, status = await finish(hasty, await hasty.start("slow", Envelope("qubo", QUBO)))
        assert (status.state, status.fault) == ("failed", True)
        assert "within 0.001 s" in status.error
        await hasty.close()

    asyncio.run(go())


BROKER = """
import asyncio, sys
from qloom.broker.devices.base import Envelope
from qloom.broker.devices.factory import make_device

async def go():
    device = make_device({"kind": "annealing"})
    await device.start("t", Envelope("qubo", {"linear": [["a", 1.0]]}, seconds=60.0))
    await asyncio.sleep(0.5)
    print("up", flush=True)
    await asyncio.sleep(60)

asyncio.run(go())
"""


def test_a_broker_that_is_killed_leaves_no_solver_behind():
    broker = subprocess.Popen([sys.executable, "-c", BROKER], stdout=subprocess.PIPE, text=True)
    assert broker.stdout.readline() == "up\n"
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    assert children
    broker.send_signal(signal.SIGKILL)
    broker.communicate()
    assert all(gone(int(pid)) for pid in children)


def test_no_time_means_no_process_and_no_timer():
    async def go():
        device = delays()
        before = time.monotonic()
        for number in range(2000):
            id = await device.start(str(number), delay(0))
            assert (await device.wait(id)).state == "done"
            assert await device.result(id) is None
        assert time.monotonic() - before < 2
        assert Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split() == []
        assert len(await device.tasks()) == 2000
        assert await device.find("0") is None  # answers are not kept for ever
        await device.close()

    asyncio.run(go())


def test_tasks_wait_while_a_device_is_drained_and_none_is_lost():
    async def go():
        device = delays()
        running = await device.start("running", delay(0.1))
        await asyncio.sleep(0.02)
        device.drain()
        assert await device.state() == "maintenance"
        waiting = [await device.start(f"w{i}", delay(0.01)) for i in range(3)]
        assert (await finish(device, running))[1].state == "done"
        await asyncio.sleep(0.05)
        assert [(await device.wait(id)).state for id in waiting] == ["vendor_queued"] * 3
        device.resume()
        assert [(await finish(device, id))[1].state for id in waiting] == ["done"] * 3
        device.drain("offline")
        assert await device.state() == "offline"
        with pytest.raises(Unreachable, match="offline"):
            await device.start("later", delay())
        assert await device.find("later") is None
        with pytest.raises(InputError):
            device.drain("busy")
        await device.close()

    asyncio.run(go())


def test_tasks_wait_for_the_end_of_a_calibration():
    async def go():
        at = time.time()
        device = delays(windows=[Window(for_s=0.3, every_s=1000.0, first_s=at)])
        assert await device.state() == "calibration"
        id = await device.start("t", delay(0.01))
        assert (await device.wait(id)).state == "vendor_queued"
        assert (await finish(device, id))[1].state == "done"
        assert time.time() - at >= 0.3
        assert await device.state() == "idle"
        await device.close()

    asyncio.run(go())


def test_windows_come_again_and_run_into_each_other():
    night = window_from({"at": "03:00", "for_s": 1800})
    assert night.left_s(3 * 3600) == 1800
    assert night.left_s(86_400 * 20_000 + 3 * 3600 + 600) == 1200
    assert night.left_s(3 * 3600 + 1800) == 0
    assert left_s([night, Window(600, first_s=3 * 3600 + 1700)], 3 * 3600) == 2300
    assert left_s([], 5.0) == 0
    for wrong in ({}, {"for_s": 0}, {"for_s": 90_000}, {"for_s": 5, "at": "25:00"}, {"for_s": 5, "x": 1}, 7):
        with pytest.raises(InputError):
            window_from(wrong)


def test_faults_are_the_same_for_the_same_seed():
    faults = Faults({"fail": 0.2, "refuse": 0.1}, seed=5)
    drawn = [faults.of(str(i), 0) for i in range(1000)]
    assert drawn == [Faults({"fail": 0.2, "refuse": 0.1}, seed=5).of(str(i), 0) for i in range(1000)]
    assert 150 < drawn.count("fail") < 250
    assert 60 < drawn.count("refuse") < 140
    for wrong in ({"rates": {"melt": 0.1}}, {"rates": {"fail": 1.2}}):
        with pytest.raises(InputError):
            Faults(**wrong)


def test_each_fault_looks_as_it_would():
    async def go():
        device = delays(faults=Faults(script={"r": "refuse", "l": "lost", "f": "fail"}))
        with pytest.raises(Unreachable):
            await device.start("r", delay(0))
        assert await device.find("r") is None
        assert (await finish(device, await device.start("r", delay(0))))[1].state == "done"  # once only
        with pytest.raises(Unreachable):
            await device.start("l", delay(0.01))
        id = await device.find("l")
        assert id is not None
        assert (await finish(device, id))[1].state == "done"
        _, status = await finish(device, await device.start("f", delay(0.02)))
        assert (status.state, status.fault) == ("failed", True)
        assert 0 < status.billed_s < 0.02 + 0.05
        await device.close()

    asyncio.run(go())


def test_a_shared_set_up_is_paid_once():
    async def go():
        device = make_device({"kind": "annealing", "set_up_s": 0.05, "per_shot_s": 0, "set_up_shared": True})
        other = {**QUBO, "offset": 1.0}
        billed = []
        for number, body in enumerate((QUBO, QUBO, other, QUBO)):
            envelope = Envelope("qubo", body, shots=3)
            billed.append((await finish(device, await device.start(str(number), envelope)))[1].billed_s)
        assert billed == pytest.approx([0.05, 0, 0.05, 0.05])
        await device.close()

    asyncio.run(go())


def test_set_up_keys_tell_the_same_register_and_the_same_circuit():
    device = make_device({"kind": "annealing"})
    rx = BELL.replace("h q[0]", "rx(0.1) q[0]")
    assert device.set_up_key(Envelope("openqasm3", rx)) == device.set_up_key(
        Envelope("openqasm3", rx.replace("0.1", "0.2"))
    )
    assert device.set_up_key(Envelope("openqasm3", rx)) != device.set_up_key(Envelope("openqasm3", BELL))
    assert device.set_up_key(Envelope("pulser", sequence())) == device.set_up_key(
        Envelope("pulser", sequence(name="another"))
    )
    assert device.set_up_key(Envelope("pulser", sequence())) != device.set_up_key(Envelope("pulser", sequence(3)))
    assert device.set_up_key(delay()) is None


# Solvers

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
        two = Envelope("openqasm3", [BELL, BELL], shots=200, options={"seed": 1})
        id = await device.start("bell", two)
        _, status = await finish(device, id)
        assert status.state == "done", status
        first, second = await device.result(id)
        assert set(first["counts"]) == {"00", "11"}
        assert first == second
        assert (sum(first["counts"].values()), first["registers"]) == (200, [["c", 2]])
        size = 6
        body = {"linear": [[f"v{i}", -1.0 - i / 10] for i in range(size)], "offset": 0.0,
                "quadratic": [[f"v{i}", f"v{i + 1}", 3.0] for i in range(size - 1)]}  # fmt: skip
        id = await device.start("qubo", Envelope("qubo", body, shots=500))
        assert (await finish(device, id))[1].state == "done"
        best = exact.solve({"kind": "qubo", "body": body, "shots": 1})
        answer = await device.result(id)
        assert answer["energy"] == pytest.approx(best["energy"])
        id = await device.start("bad", Envelope("openqasm3", BELL.replace("cx q[0], q[1]", "cx q[0]")))
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
        id = await device.start("pi", Envelope("pulser", half_turn, shots=100))
        _, status = await finish(device, id)
        assert status.state == "done", status
        answer = await device.result(id)
        assert answer["atoms"] == ["q0", "q1"]
        assert answer["counts"]["11"] > 90
        blocked = sequence(2)
        blocked["operations"][0]["amplitude"]["value"] = 3.1415926 / 0.5
        id = await device.start("blocked", Envelope("pulser", json.dumps(blocked), shots=100))
        assert (await finish(device, id))[1].state == "done"
        assert (await device.result(id))["counts"].get("11", 0) < 5
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
        envelope = Envelope("pulser", written.to_abstract_repr())
        if local:
            with pytest.raises(PayloadError, match="no local addressing"):
                check_envelope(device, envelope)
        else:
            check_envelope(device, envelope)


# What is refused

SMALL = Description("small", "superconducting", 2, ("qubo", "openqasm3", "pulser", "delay"), local_addressing=False)
THREE = {"linear": [[i, 1.0] for i in range(3)]}
REFUSED = [
    (Envelope("pickle", b""), "takes qubo, openqasm3, pulser, delay, not 'pickle'"),
    (Envelope("qubo", THREE), "the QUBO has 3 variables, small takes up to 2"),
    (Envelope("qubo", QUBO), "different linear biases, and small has no local addressing"),
    (Envelope("qubo", {"linear": [["a", float("nan")]]}), 'bias of "a" must be finite'),
    (Envelope("qubo", {"linear": [["a", 10**400]]}), "finite"),
    (Envelope("qubo", {"linear": [["a", True]]}), "must be a number, not bool"),
    (Envelope("qubo", {"linear": [["a", 1.0], ["a", 2.0]]}), "two linear biases"),
    (Envelope("qubo", {"linear": [["a", 1.0]], "quadratic": [["a", "b", 1.0]]}), '"b" has no linear bias'),
    (Envelope("qubo", {"linear": [["a", 1.0]], "quadratic": [["a", "a", 1.0]]}), "needs two variables"),
    (Envelope("qubo", {"linear": [["a", 1.0]], "extra": 1}), "no part 'extra'"),
    (Envelope("qubo", {}), "at least one variable"),
    (Envelope("qubo", [1]), "cannot be read from a list"),
    (Envelope("qubo", QUBO, shots=0), "shots must be"),
    (Envelope("qubo", QUBO, shots=10**9), "1000000000 shots, small takes up to 100000"),
    (Envelope("qubo", QUBO, seconds=float("inf")), "cannot take inf seconds"),
    (Envelope("delay", None), "must say its seconds"),
    (Envelope("openqasm3", BELL.replace("[2]", "[3]")), "the circuit has 3 qubits, small takes up to 2"),
    (Envelope("openqasm3", "OPENQASM 2.0; qreg q[2];"), "OpenQASM 2, not 3"),
    (Envelope("openqasm3", "h q;"), "does not begin with OPENQASM 3.0;"),
    (
        Envelope("openqasm3", BELL.replace("stdgates.inc", "/etc/passwd")),
        "only stdgates.inc can be included (line 2)",
    ),
    (Envelope("openqasm3", BELL.replace("h q[0]", "hh q[0]")), "no gate 'hh' (line 5)"),
    (Envelope("openqasm3", BELL.replace("h q[0]", "h q[7]")), "q[7] is used, but q has 2 (line 5)"),
    (Envelope("openqasm3", BELL.replace("h q[0]", "h q[0")), "has a ["),
    (Envelope("openqasm3", BELL.replace("h q[0];", "h q[0]);")), "has a ) too many"),
    (Envelope("openqasm3", BELL.replace("c = measure q;", "")), "measures nothing"),
    (Envelope("openqasm3", BELL + "extern f(int) -> int;"), "extern is not taken"),
    (Envelope("openqasm3", BELL + "x q[0]"), "ends within a statement"),
    (Envelope("openqasm3", BELL + "/* x"), "ends within a comment"),
    (Envelope("openqasm3", "OPENQASM 3.0; bit c;"), "declares no qubits"),
    (Envelope("openqasm3", "OPENQASM 3.0; qubit[n] q;"), "size of register q"),
    (Envelope("openqasm3", 5), "is text, or a list of texts"),
    (Envelope("openqasm3", []), "is text, or a list of texts"),
    (Envelope("pulser", "{"), "is not JSON"),
    (Envelope("pulser", {"version": "1"}), "has no 'name'"),
    (Envelope("pulser", sequence(3)), "the Pulser sequence has 3 atoms, small takes up to 2"),
    (Envelope("pulser", sequence(version="7")), "version '7', not 1"),
    (Envelope("pulser", sequence(register=[])), "has no atoms"),
    (Envelope("pulser", sequence(register=[{"name": "a", "x": float("nan"), "y": 0}])), "finite number"),
    (Envelope("pulser", sequence(register=[{"name": "a", "x": 1, "y": 0}] * 2)), "two atoms of one name"),
    (Envelope("pulser", sequence(variables={"t": {}})), "open variables: t"),
    (Envelope("pulser", sequence(measurement=None)), "measures nothing"),
    (Envelope("pulser", sequence(channel="rydberg_local")), "(channel rydberg_local), and small has no local"),
    (Envelope("pulser", sequence(operations=[{"op": "add_dmm_detuning"}])), "(operation add_dmm_detuning)"),
    (Envelope("pulser", sequence(operations=[7])), "operation without 'op'"),
]


@pytest.mark.parametrize(("envelope", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_a_device_cannot_take_is_refused_with_the_reason(envelope, reason):
    with pytest.raises(PayloadError) as refused:
        check_envelope(SMALL, envelope)
    assert reason in refused.value.message
    assert "\n" not in str(refused.value)


def test_what_a_device_can_take_is_taken():
    check_envelope(
        SMALL, Envelope("qubo", {"linear": [[[1, 2], 1.0], [None, 1.0]], "quadratic": [[None, [1, 2], 2]]})
    )
    for text in (
        BELL,
        "OPENQASM 3;qubit a;qubit b;bit c;ctrl @ x a, b;c = measure a;",
        "OPENQASM 3.0; gate f(t) a { rx(t) a; } const int[32] n = 2; qubit[n] q; f(pi/2) q[-1]; bit[n] c = "
        "measure q;",
        "OPENQASM 3.0;\nqreg q[2]; creg c[2]; for int i in [0:1] { U(0, 0, 0) q[i]; } if (c[0] == 1) reset q;\n"
        "measure q -> c; // the end",
        "OPENQASM 3.0; bit[2] c; rz(0.1) $0; c[0] = measure $1;",
    ):
        check_envelope(SMALL, Envelope("openqasm3", text))
    check_envelope(SMALL, Envelope("pulser", json.dumps(sequence())))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
named = st.dictionaries(
    st.sampled_from([*QUBO, *sequence(), "type", "variable_labels", "linear_biases"]), json_values
)
broken = st.builds(
    lambda a, b, text: BELL[:a] + text + BELL[b:], *[st.integers(0, len(BELL))] * 2, st.text(max_size=6)
)


@settings(max_examples=int(os.environ.get("QLOOM_EXAMPLES", "400")), deadline=None)
@given(st.sampled_from(["qubo", "openqasm3", "pulser"]), json_values | named | broken)
def test_fuzzed_payloads_are_taken_or_refused_and_nothing_else(kind, body):
    try:
        check_envelope(SMALL, Envelope(kind, body))
    except PayloadError:
        pass


@pytest.mark.slow
def test_reading_takes_linear_time():
    nasty = [
        *("/*" * 500_000, "ctrl @ " * 200_000, "pow(" * 300_000, "(" * 500_000, '"' * 999_999, "x" * 1_000_000),
        *("\n" * 1_000_000, "ctrl" + " " * 1_000_000, "x q;" * 200_000, "1" * 1_000_000, "q[" + "1" * 999_999 + "]"),
    ]
    began = time.monotonic()
    for text in nasty:
        with pytest.raises(PayloadError):
            read_circuit("OPENQASM 3.0;" + text)
    assert time.monotonic() - began < 15


# Vendors' devices, through the stand-in


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    monkeypatch.setenv("QRMI_STANDIN", str(tmp_path / "vendor"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return Vendor(tmp_path)


class Vendor:
    def __init__(self, folder):
        self.folder = folder / "vendor" / "machine"
        self.folder.mkdir(parents=True)
        self.tokens = folder / "tokens.jsonl"
        self.config = {"kind": "qrmi", "name": "vendor", "resource": "machine", "type": "pasqal-cloud",
                       "poll_s": 0.05, "tokens": str(self.tokens),
                       "module": "qrmi_standin", "pause_s": 0.01}  # fmt: skip

    def device(self, **options):
        return make_device({**self.config, **options})

    def faults(self, **counts):
        (self.folder / "faults.json").write_text(json.dumps(counts))

    def tasks(self):
        return sorted(path.stem for path in self.folder.glob("task-*.json"))


PULSES = Envelope("pulser", sequence(), shots=30)
either = pytest.mark.parametrize("in_process", [True, False], ids=["here", "process"])


@either
def test_a_vendors_task_from_start_to_result(vendor, in_process):
    async def go():
        device = vendor.device(in_process=in_process)
        assert (device.description.payloads, device.description.emulated) == (("pulser", "qrmi"), False)
        assert await device.state() == "idle"
        id = await device.start("one", PULSES)
        assert await device.start("one", PULSES) == id == "task-1"
        states, status = await finish(device, id)
        assert states == ["executing", "done"]
        assert status.billed_s is None  # the vendor does not tell
        answer = await device.result(id)
        assert answer == {"form": "vendor", "type": "pasqal-cloud", "value": {"counter": {"01": 30}}}
        other = await device.start("two", PULSES)
        await device.stop(other)
        assert (await finish(device, other))[1].state == "cancelled"
        with pytest.raises(UnknownTask):
            await device.wait("task-77")
        assert await device.tasks() == {}
        (vendor.folder / "offline").touch()
        assert await device.state() == "offline"
        assert (vendor.folder / "held").exists()
        await device.close()
        assert not (vendor.folder / "held").exists()
        with pytest.raises(PayloadError):
            await device.start("three", Envelope("qubo", QUBO))

    asyncio.run(go())
    assert vendor.tasks() == ["task-1", "task-2"]


def test_a_vendors_states_are_ours(vendor):
    async def go():
        device = vendor.device(in_process=True)
        states = [await device.state()]
        for name in ("busy", "paused", "offline"):
            (vendor.folder / name).touch()
            states.append(await device.state())
        vendor.faults(no_status=1)
        states.append(await device.state())  # older ones only say whether they can be reached
        await device.close()
        return states

    assert asyncio.run(go()) == ["idle", "busy", "maintenance", "offline", "offline"]


@either
def test_a_vendor_that_flaps_is_asked_again_and_never_goes_back(vendor, in_process):
    vendor.faults(status_raises=3, status_flaps=4, result_late=2)

    async def go():
        device = vendor.device(in_process=in_process)
        id = await device.start("one", PULSES)
        states, _ = await finish(device, id)
        assert states == ["vendor_queued", "executing", "done"] or states == ["vendor_queued", "done"]
        assert (await device.result(id))["value"] == {"counter": {"01": 30}}
        await device.close()

    asyncio.run(go())


@either
def test_a_start_that_fails_after_it_was_sent_is_never_repeated(vendor, in_process):
    vendor.faults(start_lost=1)

    async def go():
        device = vendor.device(in_process=in_process)
        with pytest.raises(CannotTell, match="connection reset"):
            await device.start("one", PULSES)
        with pytest.raises(CannotTell):
            await device.find("one")
        with pytest.raises(CannotTell):
            await device.start("one", PULSES)
        assert await device.find("never") is None
        await device.close()
        again = vendor.device(in_process=in_process)  # a broker that was started again
        with pytest.raises(CannotTell):
            await again.find("one")
        await again.close()

    asyncio.run(go())
    assert vendor.tasks() == ["task-1"]


def test_a_start_that_the_vendor_refused_can_be_repeated(vendor):
    vendor.faults(start_invalid=1, acquire_raises=1)

    async def go():
        device = vendor.device(in_process=True)
        with pytest.raises(Unreachable, match="login"):
            await device.start("one", PULSES)
        assert await device.find("one") is None
        with pytest.raises(QuantumFailed, match="did not take") as refused:
            await device.start("one", PULSES)
        assert not isinstance(refused.value, CannotTell)
        assert await device.find("one") is None
        assert await device.start("one", PULSES) == "task-1"
        await device.close()

    asyncio.run(go())


def test_an_answer_that_comes_too_late_is_noted(vendor):
    vendor.faults(start_slow=1)

    async def go():
        device = vendor.device(in_process=True, call_s=0.3)
        with pytest.raises(CannotTell):
            await device.start("one", PULSES)
        await asyncio.sleep(1.2)
        assert await device.find("one") == "task-1"
        await device.close()

    asyncio.run(go())


def test_the_process_dies_while_a_task_runs_and_while_one_is_handed_over(vendor):
    async def go():
        device = vendor.device()
        id = await device.start("one", PULSES)
        first = device.child.pid
        vendor.faults(status_dies=1)
        _, status = await finish(device, id)
        assert status.state == "done"
        assert device.child.pid != first
        assert gone(first)
        vendor.faults(start_dies=1)
        with pytest.raises(CannotTell):  # the vendor has it, but nobody noted its id: not started a second time
            await device.start("two", PULSES)
        assert vendor.tasks() == ["task-1", "task-2"]
        os.kill(device.child.pid, signal.SIGKILL)
        assert await device.find("one") == "task-1"
        assert await device.state() == "idle"
        await device.close()

    asyncio.run(go())


def test_a_process_that_always_dies_or_hangs_is_given_up(vendor):
    async def go():
        device = vendor.device(tries=2)
        id = await device.start("one", PULSES)
        vendor.faults(status_dies=10)
        with pytest.raises(Unreachable, match="ended"):
            await device.wait(id)
        vendor.faults()
        assert (await finish(device, id))[1].state == "done"
        await device.close()
        broken = make_device({"kind": "process", "name": "b", "device": {"kind": "annealing"}, "python": "/bin/false",
                              "pause_s": 0.01})  # fmt: skip
        assert await broken.state() == "error"
        with pytest.raises(Unreachable):
            await broken.start("t", Envelope("qubo", QUBO))
        await broken.close()
        silent = make_device({"kind": "process", "device": {"kind": "annealing"}, "python": "/bin/cat", "tries": 1})
        assert await silent.state() == "error"
        await silent.close()

    asyncio.run(go())


def test_secrets_are_in_files_of_mode_600_and_in_no_error(vendor, tmp_path):
    path = tmp_path / "secrets.toml"
    path.write_text('KEY = "hush-hush"\n')
    path.chmod(0o644)

    async def go(device):
        vendor.faults(acquire_raises=1)
        try:
            await device.start("one", PULSES)
        finally:
            await device.close()

    with pytest.raises(InputError, match="has mode 644"):
        asyncio.run(go(vendor.device(secrets=str(path), in_process=True)))
    path.chmod(0o600)
    with pytest.raises(Unreachable, match=r"login with \*\*\* failed"):
        asyncio.run(go(vendor.device(secrets=str(path), in_process=True)))


def test_the_token_log_survives_a_torn_line_and_reports_damage(tmp_path):
    path = tmp_path / "log" / "tokens.jsonl"
    log = TokenLog(path)
    log.starting("a")
    log.started("a", "id-a")
    log.starting("b")
    log.close()
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as file:
        file.write(b'{"token": "c", "eve')
    log = TokenLog(path)
    assert (log.find("a"), log.find("c"), log.known()) == ("id-a", None, ["id-a"])
    with pytest.raises(CannotTell):
        log.find("b")
    log.starting("d")
    log.close()
    assert TokenLog(path).find("a") == "id-a"
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match="damaged in line 1"):
        TokenLog(path)


def test_native_payloads_reach_the_vendor_as_they_are(vendor):
    async def go():
        device = vendor.device(type="iqm-server", in_process=True)
        body = {"variant": "IQMServer", "iqmjson": "{}", "job_type": "circuit"}
        await device.start("one", Envelope("qrmi", body))
        for wrong in ({}, {"variant": "X"}, {**body, "more": 1}, {"variant": "IQMServer", "iqmjson": "{}"}):
            with pytest.raises(PayloadError):
                device.check(Envelope("qrmi", wrong))
        await device.close()
        ibm = vendor.device(type="ibm-quantum-system", in_process=True)
        await ibm.start("two", Envelope("openqasm3", BELL, shots=9))
        await ibm.close()

    asyncio.run(go())
    first, second = (json.loads((vendor.folder / f"task-{n}.json").read_text()) for n in (1, 2))
    assert first["fields"] == {"iqmjson": "{}", "job_type": "circuit", "use_timeslot": None, "tag": None}
    assert json.loads(second["fields"]["input"])["pubs"] == [[BELL, None, 9]]


def test_the_stand_in_has_the_calls_of_the_real_package():
    qrmi = pytest.importorskip("qrmi", reason="NOT RUN: qrmi is not installed (pip install 'qloom[qrmi]')")
    from qloom.broker.devices.resource import TYPES, VARIANTS, payload_of, state_of
    from tests.unit import qrmi_standin

    for name in ("TaskStatus", "ResourceType", "ResourceStatusCode"):
        ours = {member.name for member in getattr(qrmi_standin, name)}
        assert ours <= set(dir(getattr(qrmi, name)))
    calls = {call for call in vars(qrmi_standin.QuantumResource) if not call.startswith("_")}
    assert calls <= set(dir(qrmi.QuantumResource))
    assert {python for python, _ in TYPES.values()} <= set(dir(qrmi.ResourceType))
    assert set(VARIANTS) <= set(dir(qrmi.Payload))
    assert [state_of(status) for status in (qrmi.TaskStatus.Queued, qrmi.TaskStatus.Completed)] == [
        "vendor_queued",
        "done",
    ]
    assert payload_of(qrmi, PULSES).job_runs == 30
    assert payload_of(qrmi, Envelope("openqasm3", BELL)).program_id == "sampler"
    native = {"variant": "IQMServer", "iqmjson": "{}", "job_type": "circuit"}
    assert payload_of(qrmi, Envelope("qrmi", native)).job_type == "circuit"


def test_the_real_package_without_its_settings_is_a_device_in_error(tmp_path):
    pytest.importorskip("qrmi", reason="NOT RUN: qrmi is not installed (pip install 'qloom[qrmi]')")

    async def go():
        device = make_device({"kind": "qrmi", "resource": "nowhere", "type": "pasqal-local",
                              "tokens": str(tmp_path / "tokens")})  # fmt: skip
        assert await device.state() == "error"
        with pytest.raises(Unreachable, match=r"nowhere_QRMI_.* is not set"):
            await device.start("one", PULSES)
        await device.close()

    asyncio.run(go())


def test_any_device_can_have_a_process_of_its_own():
    async def go():
        device = make_device({"kind": "process", "name": "apart", "device": {"kind": "annealing", "set_up_s": 0.01}})
        id = await device.start("one", Envelope("qubo", QUBO, shots=10, options={"seed": 3}))
        _, status = await finish(device, id)
        assert status.state == "done", status
        answer = await device.result(id)
        assert answer == solve("annealing", {"kind": "qubo", "body": QUBO, "shots": 10, "seed": 3})
        await device.ask("drain")
        assert await device.state() == "maintenance"
        await device.ask("resume")
        os.kill(device.child.pid, signal.SIGKILL)  # an emulated device forgets
        with pytest.raises(UnknownTask):
            await device.wait(id)
        assert await device.find("one") is None
        await device.close()
        with pytest.raises(Unreachable, match="closed"):
            await device.find("one")

    asyncio.run(go())


def test_another_interpreter_needs_nothing_of_ours(vendor):
    bare = "import qloom.broker.devices.serve, qloom.broker.devices.factory, qloom.broker.devices.qrmi"
    lent = command(sys.executable, "none")
    words = [lent[0], "-I", "-S", "-c", lent[3].partition("runpy.run")[0] + bare, *lent[4:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

    async def go():
        device = vendor.device(python=os.path.realpath(sys.executable))  # the system's, not that of this venv
        assert (await finish(device, await device.start("one", PULSES)))[1].state == "done"
        await device.close()

    asyncio.run(go())


# From a config


def test_every_kind_and_profile_is_described_as_published():
    schema = device_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for profile in profile_names():
        device = make_device({"kind": "annealing", "profile": profile})
        told = asyncio.run(describe(device))
        jsonschema.validate(told, schema)
        assert told["state"] in STATES
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**told, "lanes": 0}, schema)


def test_the_published_schema_is_in_step():
    published = ROOT / "docs" / "reference" / "device.schema.json"
    assert published.read_text() == schema_text(), "run: python -m qloom.broker.devices.schema > " + str(published)


def test_the_two_machines_and_what_an_emulator_makes_of_them():
    gates, atoms = load_profile("leonardo-iqm"), load_profile("leonardo-pasqal")
    assert (gates.qubits, gates.technology, gates.local_addressing) == (54, "superconducting", True)
    assert (atoms.qubits, atoms.technology, atoms.local_addressing) == (140, "neutral-atoms", False)
    emulated = make_device({"kind": "annealing", "profile": "leonardo-pasqal"})
    assert emulated.description.qubits == 140
    assert emulated.seconds(Envelope("qubo", QUBO, shots=100)) == 400
    with pytest.raises(PayloadError, match="has 141 variables, leonardo-pasqal takes up to 140"):
        emulated.check(Envelope("qubo", {"linear": [[i, 1.0] for i in range(141)]}))
    twice = {"kind": "process", "device": {"kind": "qaoa", "profile": "leonardo-iqm"}}
    assert make_device(twice).description.qubits == 20  # what it can hold, not what the machine has


WRONG = [
    ({"kind": "warp"}, "no device of kind 'warp'"),
    ({"lanse": 2}, "lanse is not a known key of kind annealing"),
    ({"lanes": 0}, "lanes must be a whole number of at least 1, not 0"),
    ({"lanes": True}, "lanes must be"),
    ({"set_up_s": -1}, "set_up_s must be a number"),
    ({"per_shot_s": float("nan")}, "per_shot_s must be a number"),
    ({"technology": "abacus"}, "no QPU technology is called 'abacus'"),
    ({"profile": "hal"}, "no profile is called 'hal'"),
    ({"profile": "helmi", "technology": "annealer"}, "not both"),
    ({"name": ""}, "name must be text"),
    ({"local_addressing": "no"}, "must be true or false"),
    ({"calibration": 7}, "a list of windows"),
    ({"calibration": [{"for_s": "long"}]}, "for_s must be a number"),
    ({"faults": {"often": 1}}, "faults.often is not a known key"),
    ({"kind": "qrmi"}, "needs resource"),
    ({"kind": "qrmi", "resource": "r", "type": "abacus", "tokens": "t"}, "QRMI has no type 'abacus'"),
    ({"kind": "process"}, "needs a table 'device'"),
    ({"kind": "process", "device": {"kind": "annealing"}, "python": "/no/python"}, "/no/python is no Python"),
    ({"kind": "process", "device": {"kind": "annealing", "lanse": 1}}, "lanse is not a known key"),
    ({"kind": "process", "device": {"kind": "process"}}, "of no use"),
    ({"kind": "process", "device": {"kind": "annealing"}, "environment": {"A": 1}}, "environment.A must be text"),
]


@pytest.mark.parametrize(("config", "reason"), WRONG, ids=lambda value: str(value)[:50])
def test_a_wrong_config_is_one_clear_line(config, reason):
    with pytest.raises(InputError) as wrong:
        make_device({"kind": "annealing", **config} if "kind" not in config else config)
    assert reason in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("kind", "module", "extra"), [("qaoa", "qiskit_aer", "qaoa"), ("pulser", "pulser", "pulser")]
)
def test_a_missing_extra_is_named(kind, module, extra, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == module else found(name, *rest)
    )
    if kind == "qaoa" and found("qiskit") is None:
        module = "qiskit"
    with pytest.raises(InputError, match=f"kind {kind} needs {module}") as missing:
        make_device({"kind": kind})
    assert f"pip install 'qloom[{extra}]'" in str(missing.value)
    assert make_device({"kind": "process", "device": {"kind": kind}}).description.name == "process"


def test_kinds_are_what_is_documented():
    page = (ROOT / "docs" / "guides" / "devices.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
    assert [name for name in profile_names() if f"`{name}`" not in page] == []
