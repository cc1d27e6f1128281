"""Qiskit's objects of a job: phases of the job, with Qiskit's conventions, in programs of both kinds."""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("qiskit", reason="NOT TESTED: pip install 'qloom[qiskit]'")
pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[qiskit]'")

import numpy as np
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister, transpile
from qiskit.circuit import Clbit, Parameter
from qiskit.primitives import (
    BackendEstimatorV2,
    BackendSamplerV2,
    BaseEstimatorV2,
    BaseSamplerV2,
    StatevectorEstimator,
    StatevectorSampler,
)
from qiskit.providers import BackendV2, JobStatus

import qloom
from qloom.errors import InputError, JobError, PayloadError, QloomError
from qloom.interop.qiskit import QloomBackendV2
from qloom.journal.events import QuantumEnded, QuantumQueued
from tests.interop.transports import StatevectorTransport

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "textbook"))
import qiskit_programs
import qiskit_textbook

SITE = qloom.Site(nodes=2, qpus=(qloom.Qpu("gates", "photonic"),))


def virtual(program, **plan):
    return qloom.run(program, world="virtual", in_memory=True, site=SITE, **plan)


def result_of(program, **plan):
    return virtual(program, **plan).result


def bell():
    circuit = QuantumCircuit(2)
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure_all()
    return circuit


def test_objects_are_qiskits_and_a_pub_of_forty_circuits_is_one_task():
    circuit = QuantumCircuit(1)
    circuit.ry(Parameter("a"), 0)
    circuit.measure_all()

    def program(job):
        sampler = job.qiskit_sampler()
        assert isinstance(sampler, BaseSamplerV2)
        assert isinstance(job.qiskit_estimator(), BaseEstimatorV2)
        assert isinstance(job.qiskit_backend(), BackendV2)
        running = sampler.run([(circuit, np.linspace(0, math.pi, 40)[:, None])])
        data = running.result()[0].data
        assert (running.status(), len(running.tasks)) == (JobStatus.DONE, 1)
        return data.shape, data.meas.num_shots, data.meas.get_counts(0), data.meas.get_counts(39)

    outcome = virtual(program)
    assert outcome.result == ((40,), 1024, {"0": 1024}, {"1": 1024})
    assert len([event for event in outcome.events if isinstance(event, QuantumQueued)]) == 1


def test_equal_circuits_of_one_pub_draw_independently():
    def program(job):
        circuit = QuantumCircuit(1)
        circuit.ry(Parameter("a"), 0)
        circuit.measure_all()
        data = job.qiskit_sampler().run([(circuit, [[math.pi / 2]] * 8)], shots=100).result()[0].data
        return [data.meas.get_counts(place)["0"] for place in range(8)]

    assert len(set(result_of(program))) > 3


def registers():
    """Several registers, not all bits measured, bits outside registers, registers that share a bit."""
    first, second, bits = ClassicalRegister(2, "first"), ClassicalRegister(3, "second"), [Clbit(), Clbit()]
    plain = QuantumCircuit(QuantumRegister(5, "r"), first, second)
    swapped = QuantumCircuit(QuantumRegister(5, "r"), second, first)
    loose = QuantumCircuit(QuantumRegister(5, "r"), bits, first, second)
    shared = QuantumCircuit(QuantumRegister(5, "r"), first, second, ClassicalRegister(bits=first[:1], name="in"))
    for circuit in (plain, swapped, loose, shared):
        circuit.x([0, 3])
        circuit.measure(range(2), first)
        circuit.measure([3], [second[1]])
        yield circuit


@pytest.mark.parametrize("circuit", list(registers()), ids=["plain", "swapped", "loose", "shared"])
def test_registers_and_bit_order_are_those_of_qiskits_own_sampler(circuit):
    def counts(sampler):
        data = sampler.run([circuit], shots=5).result()[0].data
        return {name: (data[name].num_bits, data[name].get_counts()) for name in data}

    theirs = counts(StatevectorSampler())
    assert result_of(lambda job: counts(job.qiskit_sampler()), parameters={}) == theirs
    assert theirs["first"] == (2, {"01": 5})
    assert theirs["second"] == (3, {"010": 5})


def test_a_measurement_in_the_middle_decides_what_follows():
    """Teleportation: Qiskit's own sampler does not take such circuits."""
    middle, end = ClassicalRegister(2, "middle"), ClassicalRegister(1, "end")
    circuit = QuantumCircuit(QuantumRegister(3), middle, end)
    circuit.ry(1.2, 0)
    circuit.h(1)
    circuit.cx(1, 2)
    circuit.cx(0, 1)
    circuit.h(0)
    circuit.measure([0, 1], middle)
    with circuit.if_test((middle[1], 1)):
        circuit.x(2)
    with circuit.if_test((middle[0], 1)):
        circuit.z(2)
    circuit.ry(-1.2, 2)
    circuit.measure(2, end)

    def program(job):
        data = job.qiskit_sampler().run([circuit], shots=100).result()[0].data
        backend = job.qiskit_backend().run(circuit, shots=50).result().get_counts()
        return data.end.get_counts(), len(data.middle.get_counts()), {text.split()[0] for text in backend}

    assert result_of(program) == ({"0": 100}, 4, {"0"})


def test_a_backend_runs_what_qiskit_transpiles_to_it():
    def program(job):
        backend = job.qiskit_backend()
        result = backend.run([transpile(bell(), backend)] * 2, shots=60, memory=True).result()
        return [sum(counts.values()) for counts in result.get_counts()], len(result.get_memory(0)), backend.name

    assert result_of(program) == ([60, 60], 60, "qpu")


def test_qiskits_primitives_over_the_backend():
    """They start threads of their own, which a program may not do in virtual time."""
    backend = QloomBackendV2(transport=StatevectorTransport())
    sampled = BackendSamplerV2(backend=backend).run([bell()], shots=30).result()[0].data.meas
    assert set(sampled.get_counts()) == {"00", "11"}
    circuit = bell().remove_final_measurements(inplace=False)
    assert BackendEstimatorV2(backend=backend).run([(circuit, "XX")]).result()[0].data.evs == 1.0


async def awaits(job):
    sampler, estimator, backend = job.qiskit_sampler(), job.qiskit_estimator(), job.qiskit_backend()
    sampled, estimated, counted = await asyncio.gather(
        sampler.run([bell()], shots=10), estimator.run([(bell(), "ZZ")]), backend.run(bell(), shots=20)
    )
    return sampled[0].data.meas.num_shots, float(estimated[0].data.evs), sum(counted.get_counts().values())


def test_an_asynchronous_program_awaits_the_same_objects():
    assert result_of(awaits) == (10, 1.0, 20)


@pytest.mark.parametrize("name", ["vqe", "qaoa_max_cut", "chsh", "grover"])
def test_textbook_functions_run_unchanged(name):
    """Each with Qiskit's own objects, and as a program."""
    function = getattr(qiskit_textbook, name)
    theirs = {"estimator": StatevectorEstimator(), "sampler": StatevectorSampler(seed=1)}
    wanted = {key: each for key, each in theirs.items() if key in inspect.signature(function).parameters}
    expected, ours = function(**wanted), result_of(getattr(qiskit_programs, name))
    if isinstance(expected, float):
        assert ours == pytest.approx(expected, abs=0.15)
    else:
        assert ours == expected


def on_helmi(job):
    """Five qubits, coupled as a star; r and cz are its gates."""
    sampler, estimator, backend = job.qiskit_sampler(), job.qiskit_estimator(), job.qiskit_backend()
    ghz = QuantumCircuit(4)
    ghz.h(0)
    for qubit in range(3):
        ghz.cx(qubit, qubit + 1)
    evs = estimator.run([(ghz, ["ZZII", "IIZZ", "XXXX", "ZIIZ"])]).result()[0].data.evs
    ghz.measure_all()
    counts = sampler.run([ghz], shots=50).result()[0].data.meas.get_counts()
    again = backend.run(transpile(ghz, backend, seed_transpiler=1), shots=50).result().get_counts()
    with pytest.raises(PayloadError, match=r"no gate 'h'.*transpile"):
        job.quantum(ghz)
    with pytest.raises(PayloadError, match="6 qubits, and the device has 5"):
        estimator.run([(QuantumCircuit(6), "Z" * 6)])
    return evs.tolist(), set(counts), set(again), backend.target.num_qubits


def test_objects_compile_to_the_device_and_a_plain_call_refuses():
    site = qloom.Site(nodes=1, qpus=(qloom.Qpu("helmi", profile="helmi"),))
    evs, counts, again, qubits = qloom.run(on_helmi, world="virtual", in_memory=True, site=site).result
    assert evs == [1.0, 1.0, 1.0, 1.0]
    assert (counts, again, qubits) == ({"0000", "1111"}, {"0000", "1111"}, 5)


def test_programs_of_functions():
    @qloom.program
    def by_name(estimator, job, shots: int = 7, **more):
        return float(estimator.run([(bell(), "ZZ")], shots=shots).result()[0].data.evs), job.name, more

    def by_annotation(primitive: "qiskit.primitives.BaseSamplerV2", machine: BackendV2, shots):  # noqa: F821, UP037
        return primitive.run([bell()], shots=shots).result()[0].data.meas.num_shots, machine.name

    @qloom.program
    async def awaited(sampler):
        return (await sampler.run([bell()], shots=3))[0].data.meas.num_shots

    assert list(inspect.signature(by_name).parameters) == ["job", "shots", "more"]
    assert result_of(by_name, parameters={"other": 1}) == (1.0, "j1", {"other": 1})
    assert result_of(qloom.program(by_annotation), parameters={"shots": 5}) == (5, "qpu")
    assert result_of(awaited) == 3
    with pytest.raises(InputError, match=r"has no parameter 'shot'.*shots"):
        virtual(qloom.program(by_annotation), parameters={"shot": 5})
    with pytest.raises(InputError, match=r"takes no object of a job.*estimator"):
        qloom.program(bell)


@pytest.mark.slow  # two processes that import Qiskit
def test_several_synchronous_jobs_have_processes_and_the_same_answers():
    outcome = virtual(qiskit_programs.grover, jobs=2)
    assert outcome.results == ["101", "101"]


def unbound():
    circuit = QuantumCircuit(1)
    circuit.ry(Parameter("angle"), 0)
    circuit.measure_all()
    return circuit


async def asks_too_early(job):
    return job.qiskit_sampler().run([bell()]).result()


def awaits_in_a_def(job):
    async def inner():
        return await job.qiskit_sampler().run([bell()])

    inner().send(None)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (lambda job: job.qiskit_sampler().run([QuantumCircuit(2)]), "pub 0: the circuit measures nothing"),
        (lambda job: job.qiskit_sampler().run([bell(), unbound()]), r"pub 1: .*angle"),
        (lambda job: job.qiskit_backend().run(unbound()), "circuit 0 has parameters without values: angle"),
        (lambda job: job.qiskit_backend().run(bell(), colour=1), "no option 'colour'"),
        (lambda job: job.qiskit_backend().run([]), "no circuit"),
        (lambda job: job.qiskit_sampler().run(bell()), "expected a list of pubs, got a QuantumCircuit"),
        (lambda job: job.qiskit_sampler().run([bell()], shots=0), "shots must be a whole number"),
        (lambda job: job.qiskit_estimator().run([(bell(), "Z")]), "observable"),
        (lambda job: job.qiskit_estimator().run([(bell(), "ZZ")], precision=0), "precision must be greater than 0"),
        (asks_too_early, r"the result is not there yet \(.*await"),
        (awaits_in_a_def, r"a synchronous program does not await \(.*result"),
    ],
)
def test_bad_input_is_one_line_and_reaches_no_device(program, line):
    outcome = virtual(program)
    with pytest.raises(QloomError, match=line) as refused:
        _ = outcome.result
    assert "\n" not in str(refused.value)
    assert not [event for event in outcome.events if isinstance(event, QuantumEnded) and event.state == "done"]
    assert isinstance(refused.value, PayloadError | InputError | JobError)
