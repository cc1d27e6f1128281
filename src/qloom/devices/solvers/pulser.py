"""A neutral-atom machine on pulser-simulation: runs sequences in Pulser's abstract representation."""

from __future__ import annotations

import importlib
import json
import warnings
from typing import Any

import numpy as np

from qloom.devices.solvers import check_limit, seed_of
from qloom.errors import PayloadError
from qloom.payloads.pulser import read_sequence

LARGEST = 12  # atoms: a minute on one core; each further one doubles it


def solve(request: dict[str, Any]) -> dict[str, Any]:
    """Counts of measured bit strings; bit i is the i-th atom of the register."""
    pulser: Any = importlib.import_module("pulser")
    simulation: Any = importlib.import_module("pulser_simulation")
    wanted = read_sequence(request["body"])
    try:
        sequence = pulser.Sequence.from_abstract_repr(json.dumps(wanted))
    except Exception as error:  # Pulser has many kinds
        raise PayloadError(f"the Pulser sequence cannot be read: {str(error).splitlines()[0][:200]}") from None
    check_limit(request, "qubits", len(sequence.register.qubit_ids), "the sequence has {} atoms")
    check_limit(request, "max_duration_ns", sequence.get_duration(), "the sequence lasts {} ns")
    np.random.seed(seed_of(request))  # Pulser samples with the global generator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        emulator = simulation.QutipEmulator.from_sequence(sequence)
        found = emulator.run().sample_final_state(N_samples=request["shots"])
    counts = {str(bits): int(number) for bits, number in sorted(found.items())}
    atoms = [str(name) for name in sequence.register.qubit_ids]
    return {"form": "counts", "counts": counts, "atoms": atoms, "shots": request["shots"]}
