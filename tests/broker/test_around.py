"""The broker that a Slurm site tells its jobs of: `$QLOOM_BROKER` counts there, and nowhere else."""

from __future__ import annotations

import pytest

import qloom
from qloom import delay
from qloom.site import Qpu, Site
from tests.broker.processes import Service
from tests.journals import as_lines


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    devices = [{"kind": "annealing", "name": "there"}]
    running = Service(tmp_path_factory.mktemp("b"), module="tests.broker.plain", devices=devices)
    running.start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def told(service, monkeypatch):
    monkeypatch.setenv("QLOOM_BROKER", service.address)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


async def program(job):
    return await job.quantum(delay(0.01, 5))


def devices_of(**plan):
    outcome = qloom.run(program, in_memory=True, **plan)
    assert outcome.result == 5
    return [event["device"] for event in as_lines(outcome.events) if event["event"] == "quantum_queued"]


def test_inside_a_slurm_job_the_qpus_are_the_brokers(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert devices_of() == ["there"]


def test_elsewhere_the_variable_means_nothing_to_a_run():
    assert devices_of() == ["qpu"]


def test_qpus_that_a_run_names_and_those_of_virtual_time_go_before(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert devices_of(site=Site(qpus=(Qpu("mine"),))) == ["mine"]
    assert devices_of(world="virtual") == ["qpu"]
