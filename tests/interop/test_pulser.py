"""Pulser's backend of a job: a Pulser job is a phase, an open batch a block, results are Pulser's."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pulser", reason="NOT TESTED: pip install 'qloom[pulser]'")
pytest.importorskip("pulser_simulation", reason="NOT TESTED: pip install 'qloom[pulser]'")

import numpy as np
import pulser
from pulser.backend import BackendConfig
from pulser.backend.remote import BatchStatus, RemoteBackend

import qloom
from qloom.errors import QloomError
from qloom.journal.events import QuantumQueued
from qloom.strategies import STRATEGIES

SITE = qloom.Site(nodes=1, qpus=(qloom.Qpu("atoms", "neutral-atoms"),))


def pair(parametrised=False):
    sequence = pulser.Sequence(pulser.Register({"q0": (0, 0), "q1": (0, 30)}), pulser.MockDevice)
    sequence.declare_channel("all", "rydberg_global")
    area = sequence.declare_variable("area") if parametrised else np.pi
    sequence.add(pulser.Pulse.ConstantPulse(400, area / 0.4, 0, 0), "all")
    return sequence


def run(program, **plan):
    return qloom.run(program, **{"world": "virtual", "in_memory": True, "site": SITE, "parameters": {}, **plan})


def refusal(program, **plan):
    with pytest.raises(QloomError) as refused:
        assert run(program, **plan).result is None
    assert "\n" not in str(refused.value)
    return re.sub(r" \(\w+\.py, line \d+\)", "", str(refused.value))  # the line of the program


def scan(job):
    """A pi pulse excites both atoms, none leaves them as they are."""
    backend = job.pulser_backend(pair(parametrised=True))
    assert isinstance(backend, RemoteBackend)
    results = backend.run([{"runs": 20, "variables": {"area": area}} for area in (0.0, np.pi)])
    return [dict(each.final_bitstrings) for each in results]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_result_under_every_strategy_in_virtual_time(strategy):
    outcome = run(scan, strategy=strategy)
    assert outcome.result == [{"00": 20}, {"11": 20}]
    assert len([event for event in outcome.events if isinstance(event, QuantumQueued)]) == 2


def test_states_waiting_and_shots_of_the_config():
    def program(job):
        backend = job.pulser_backend(pair(), device="atoms", config=BackendConfig(default_num_shots=7))
        results = backend.run()
        before = results.get_batch_status()
        counts = results[0].final_bitstrings
        assert results[0].atom_order == ("q0", "q1")
        return before, sum(counts.values()), results.get_batch_status(), len(results.get_available_results())

    assert run(program).result == (BatchStatus.RUNNING, 7, BatchStatus.DONE, 1)


def test_an_open_batch_is_a_block():
    def program(job):
        backend = job.pulser_backend(pair())
        with backend.open_batch():
            first, second = backend.run([{"runs": 5}]), backend.run([{"runs": 6}])
        return [sum(each[0].final_bitstrings.values()) for each in (first, second)]

    outcome = run(program, strategy="workflow")
    assert outcome.result == [5, 6]
    assert {event.hold for event in outcome.events if isinstance(event, QuantumQueued)} == {"whole"}


def test_a_batch_that_is_cancelled():
    def program(job):
        backend = job.pulser_backend(pair())
        results = backend.run([{"runs": 5}])
        backend.connection.cancel(results.batch_id)
        return results.get_batch_status()

    assert run(program).result == BatchStatus.CANCELED


def test_what_no_device_takes_is_said_in_one_line():
    gates = qloom.Site(nodes=1, qpus=(qloom.Qpu("gates", "superconducting"),))
    assert "no QPU here takes a payload of kind 'pulser'" in refusal(scan, site=gates)


def test_an_async_program_is_shown_the_way():
    async def program(job):
        job.pulser_backend(pair())

    assert "a Pulser backend waits, which an async program must not (write def, or await job.quantum(" in refusal(
        program
    )
