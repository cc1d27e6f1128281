"""The QPU that a job holds is the one that its calls need, under every strategy, in virtual time."""

from __future__ import annotations

import pytest

import qloom
from qloom.errors import PayloadError, QuantumFailed
from qloom.journal.events import CandidateChosen, Granted, QpuReleased, QuantumStarted, Released
from qloom.payloads.adapt import delay
from qloom.strategies import STRATEGIES

HOLDING = ["coschedule", "vqpu", "malleable+share", "malleable+whole", "workflow+whole", "workflow+share", "split"]
TWO = qloom.Site(qpus=(qloom.Qpu("a", "annealer"), qloom.Qpu("b", "superconducting")))


def names():
    return [name for name in STRATEGIES.built_in if name != "auto"]


def run(program, strategy, site=TWO, **options):
    return qloom.run(program, strategy=strategy, world="virtual", site=site, in_memory=True, **options)


def held_s(outcome, device):
    """Seconds for which a device was held, by the journal alone."""
    since, total = {}, 0.0
    for event in outcome.events:
        if isinstance(event, Granted) and event.device == device:
            since[event.lease] = event.at_us
        elif isinstance(event, Released | QpuReleased) and event.lease in since:
            total += (event.at_us - since.pop(event.lease)) / 1e6
    assert not since, "everything is given back"
    return total


@qloom.task(expected_s=3.0, stand_in=lambda: 7)
def classical():
    return 7


@pytest.mark.parametrize("strategy", [*names(), *HOLDING])
def test_a_named_device_is_the_one_that_is_held(strategy):
    async def program(job):
        return await job.quantum(delay(4.0, "done"), device="b")

    outcome = run(program, strategy)
    assert outcome.results == ["done"]
    assert [event.device for event in outcome.events if isinstance(event, QuantumStarted)] == ["b"]
    assert held_s(outcome, "a") == 0
    if strategy in HOLDING:
        assert held_s(outcome, "b") == 4.0


@pytest.mark.parametrize("strategy", [*names(), *HOLDING])
def test_a_device_is_chosen_by_what_it_takes(strategy):
    async def program(job):
        await job.classical(classical())
        bell = 'OPENQASM 3.0; include "stdgates.inc"; qubit[2] q; bit[2] c; h q[0]; cx q[0], q[1]; c = measure q;'
        return (await job.quantum(bell, shots=10, expected_s=2.0)).shots

    pytest.importorskip("qiskit_aer", reason="NOT RUN: qiskit-aer is not installed (pip install 'qloom[qiskit]')")
    outcome = run(program, strategy)
    assert outcome.results == [10]
    assert [event.device for event in outcome.events if isinstance(event, QuantumStarted)] == ["b"]
    if strategy in HOLDING:
        assert held_s(outcome, "b") == 2.0, "from the call on: the hold of the wrong device was exchanged"
        assert held_s(outcome, "a") <= 3.0, "and nobody waits with it"


@pytest.mark.parametrize("strategy", ["coschedule", "vqpu", "malleable+share", "split"])
def test_a_declared_device_is_held_from_the_beginning(strategy):
    async def program(job):
        job.expect_quantum(device="b")
        await job.classical(classical())
        return await job.quantum(delay(2.0, 1), device="b")

    outcome = run(program, strategy)
    assert held_s(outcome, "a") == 0
    assert held_s(outcome, "b") == (2.0 if strategy == "split" else 5.0)


@pytest.mark.parametrize("strategy", ["coschedule", "vqpu", "malleable+whole"])
def test_two_devices_are_held_as_the_strategy_says(strategy):
    async def program(job):
        for device in ("a", "b", "a", "b"):
            await job.quantum(delay(1.0), device=device)

    outcome = run(program, strategy)
    assert (held_s(outcome, "a"), held_s(outcome, "b")) == (4.0, 3.0), "each from its first call to the end"


@pytest.mark.parametrize("strategy", ["split", "workflow+whole"])
def test_a_strategy_that_holds_a_qpu_for_a_block_holds_two_for_theirs(strategy):
    async def program(job):
        for device in ("a", "b", "a"):
            await job.quantum(delay(1.0), device=device)

    outcome = run(program, strategy)
    assert (held_s(outcome, "a"), held_s(outcome, "b")) == (2.0, 1.0)


@pytest.mark.parametrize("strategy", ["coschedule", "vqpu", "offload", "malleable+share"])
def test_calls_that_overlap_hold_both_devices(strategy):
    async def program(job):
        calls = [job.quantum(delay(2.0, device), device=device) for device in ("a", "b", "b")]
        return [await call for call in calls]

    outcome = run(program, strategy)
    assert outcome.results == [["a", "b", "b"]]
    held_s(outcome, "a")
    held_s(outcome, "b")


@pytest.mark.parametrize("strategy", [*names(), *HOLDING])
@pytest.mark.parametrize("first", ["candidate", "classical"])
def test_candidates_run_while_the_device_is_away(strategy, first):
    async def program(job):
        if first == "classical":
            await job.classical(classical())
        return await job.quantum(delay(4.0, "quantum"), or_classical=classical())

    outcome = run(program, strategy, qloom.Site(qpus=(qloom.Qpu("a", "annealer", offline=True),)))
    assert outcome.results == [7]
    (choice,) = [event for event in outcome.events if isinstance(event, CandidateChosen)]
    assert choice.choice == "classical"
    assert outcome.events[-1].at_us == (6e6 if first == "classical" else 3e6)
    assert held_s(outcome, "a") == 0


@pytest.mark.parametrize("strategy", ["coschedule", "vqpu"])
def test_a_hold_that_was_left_out_is_taken_when_a_call_needs_it(strategy):
    async def program(job):
        first = await job.quantum(delay(4.0, "quantum"), or_classical=classical())
        return [first, await job.quantum(delay(4.0, "quantum"))]

    outcome = run(program, strategy, qloom.Site(qpus=(qloom.Qpu("a", "annealer", outages_s=((0.0, 10.0),)),)))
    assert outcome.results == [[7, "quantum"]]
    assert held_s(outcome, "a") > 0
    assert outcome.events[-1].at_us == 14e6


def test_a_device_without_return_is_an_error_of_the_call():
    async def program(job):
        await job.classical(classical())
        await job.quantum(delay(1.0))

    with pytest.raises(QuantumFailed, match="offline and no return is planned"):
        raise run(program, "coschedule", qloom.Site(qpus=(qloom.Qpu("a", "annealer", offline=True),))).errors[0]


@pytest.mark.parametrize(
    ("payload", "device", "message", "hint"),
    [
        ("circuit", "a", "a takes qubo, delay, command, not 'openqasm3'", "QPU b takes it"),
        ("circuit", "c", "no QPU is called 'c'", "there is: a, b"),
        ("sequence", None, "no QPU here takes a payload of kind 'pulser'", "--qpu NAME:neutral-atoms"),
        ("large", None, "the circuit has 30 qubits in use, b takes up to 20", "a smaller problem"),
    ],
)
@pytest.mark.parametrize("strategy", ["coschedule", "offload", "workflow"])
def test_what_no_device_takes_is_refused_before_anything_is_held(payload, device, message, hint, strategy):
    text = 'OPENQASM 3.0; include "stdgates.inc"; qubit[N] q; bit[N] c; h q; c = measure q;'
    body = {"circuit": text.replace("[N]", "[2]"), "large": text.replace("[N]", "[30]"), "sequence": {}}[payload]

    async def program(job):
        await job.quantum(qloom.Payload("pulser" if payload == "sequence" else "openqasm3", body), device=device)

    outcome = run(program, strategy)
    (error,) = outcome.errors
    assert isinstance(error, PayloadError)
    assert message in error.message
    assert hint in str(error.hint)
    assert not [event for event in outcome.events if isinstance(event, Granted)]
