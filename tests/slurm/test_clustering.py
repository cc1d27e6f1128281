"""The clustering program on a real cluster: it ends with the labels that it ends with on this machine."""

from __future__ import annotations

import pytest

import qloom
from qloom.clustering import program
from tests.journals import as_lines

SETTINGS = {"blobs": 600, "iterations": 3, "threshold": 1.0, "quantum_s": 0.01, "plot": ""}


def labels_of(world, strategy):
    """What the program writes, and the run."""
    outcome = qloom.run(program, parameters=SETTINGS, strategy=strategy, world=world, seed=3)
    assert "labels.csv" in outcome.result["files"]
    return (outcome.directory / "output" / "j1" / "labels.csv").read_bytes(), outcome


@pytest.mark.slow
@pytest.mark.usefixtures("slurm_env", "qloom_home")
def test_malleable_on_slurm_gives_the_labels_of_the_local_world():
    expected, _ = labels_of("local", "offload")
    labels, outcome = labels_of("slurm", "malleable")
    assert any(event["event"] == "grown" for event in as_lines(outcome.events))
    assert labels == expected
