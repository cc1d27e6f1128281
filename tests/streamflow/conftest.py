"""Real StreamFlow, in its own environment, and a real Slurm; tests are skipped, loudly, where one is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qloom.errors import InputError
from qloom.streamflow.process import find_streamflow, step_environment
from qloom.testbed import Testbed, TestbedSettings
from qloom.testbed.settings import APT
from tests.streamflow.workflows import Engine


@pytest.fixture(scope="session")
def streamflow() -> Path:
    """The executable."""
    try:
        return find_streamflow()
    except InputError as error:
        pytest.skip(f"STREAMFLOW IS NOT TESTED: {error}")


@pytest.fixture
def engine(streamflow, tmp_path) -> Engine:
    """StreamFlow on this machine."""
    return Engine(streamflow.parent, tmp_path, step_environment())


@pytest.fixture(scope="session")
def own_testbed():
    """A Slurm site with a broker, for all tests of this folder."""
    if absent := TestbedSettings().installation.missing():
        pytest.skip(f"SLURM IS NOT TESTED: {', '.join(absent)} not here ({APT})")
    with Testbed.up(f"test-streamflow-{os.getpid()}", TestbedSettings(), attached=True) as testbed:
        yield testbed


@pytest.fixture
def site(streamflow, own_testbed, tmp_path, monkeypatch) -> Engine:
    """StreamFlow on the testbed."""
    for name, value in own_testbed.environment.items():
        monkeypatch.setenv(name, value)
    return Engine(streamflow.parent, tmp_path, step_environment(), own_testbed)
