"""An annealer as D-Wave's SAPI describes it: its name and graph, its properties, and its time scale."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from qloom.broker.doors.door import target_of
from qloom.device import Description
from qloom.devices.profiles import couplings_of

ANNEALING_US = 20.0  # of one read, unless the problem says otherwise
LEAST_ANNEAL_US, MOST_ANNEAL_US = 0.5, 2000.0
H_RANGE, J_RANGE = (-4.0, 4.0), (-2.0, 1.0)  # as published for the machines; beyond them `auto_scale` scales
PARAMETERS = ("num_reads", "annealing_time", "answer_mode", "max_answers", "auto_scale", "label")  # that are heeded

known_couplings = functools.lru_cache(16)(couplings_of)


@dataclass(frozen=True)
class TimeScale:
    """How long an annealer takes, in microseconds: from what its description says of set-up and shots."""

    programming_us: float
    annealing_us: float
    readout_us: float

    @classmethod
    def of(cls, device: Description) -> TimeScale:
        """The annealing of a read is a part of what the device takes for a shot; the rest is readout."""
        shot_us = device.per_shot_s * 1e6
        annealing_us = min(ANNEALING_US, shot_us)
        return cls(device.set_up_s * 1e6, annealing_us, shot_us - annealing_us)

    def access_us(self, reads: int, annealing_us: float | None) -> float:
        """What a problem takes: the formula of the client's `estimate_qpu_access_time`."""
        return self.programming_us + reads * ((annealing_us or self.annealing_us) + self.readout_us)

    def published(self, qubits: int) -> dict[str, Any]:
        """As a solver's property `problem_timing_data`."""
        turns = ("with_reinit_prog", "without_reinit_prog", "with_reinit_delay", "without_reinit_delay")
        return {
            "version": "1.0.0",
            "typical_programming_time": self.programming_us,
            "default_annealing_time": self.annealing_us,
            "readout_time_model": "pwl_linear",
            "readout_time_model_parameters": [1, qubits, self.readout_us, self.readout_us],
            "decorrelation_max_nominal_anneal_time": MOST_ANNEAL_US,
            "decorrelation_time_range": [0.0, 0.0],
            "qpu_delay_time_per_sample": 0.0,
            "default_programming_thermalization": 0.0,
            "default_readout_thermalization": 0.0,
            **{f"reverse_annealing_{turn}_time_delta": 0.0 for turn in turns},
        }

    def spent(self, billed_s: float, reads: int, annealing_us: float | None) -> dict[str, float]:
        """The times of an answer, from what the device billed."""
        whole_us = billed_s * 1e6
        sampling_us = min(whole_us, self.access_us(reads, annealing_us) - self.programming_us)
        return {
            "qpu_access_time": whole_us,
            "qpu_programming_time": whole_us - sampling_us,
            "qpu_sampling_time": sampling_us,
            "qpu_anneal_time_per_sample": annealing_us or self.annealing_us,
            "qpu_readout_time_per_sample": self.readout_us,
            "qpu_delay_time_per_sample": 0.0,
            "qpu_access_overhead_time": 0.0,
            "total_post_processing_time": 0.0,
            "post_processing_overhead_time": 0.0,
        }


def identity(device: Description) -> dict[str, Any]:
    """A solver by its name and its graph."""
    return {"name": device.name, "version": {"graph_id": graph_id(device)}}


@functools.lru_cache(64)
def graph_id(device: Description) -> str:
    """The name of a graph: another graph has another one."""
    target = target_of(device)
    text = json.dumps([target.qubits, known_couplings(target)])
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@functools.lru_cache(64)
def properties(device: Description) -> dict[str, Any]:
    """What a solver publishes of itself: only parameters that the device heeds."""
    target, scale = target_of(device), TimeScale.of(device)
    family, *shape = target.graph.split() or [""]
    topology = {"topology": {"type": family, "shape": [int(number) for number in shape]}} if family else {}
    return {
        "supported_problem_types": ["ising", "qubo"],
        "category": "qpu",
        "chip_id": device.name,
        "num_qubits": target.qubits,
        "qubits": list(range(target.qubits)),
        "couplers": [list(pair) for pair in known_couplings(target)],
        **topology,
        "parameters": dict.fromkeys(PARAMETERS),
        "num_reads_range": [1, device.max_shots],
        "h_range": list(H_RANGE),
        "j_range": [-J_RANGE[1], J_RANGE[1]],
        "extended_j_range": list(J_RANGE),
        "annealing_time_range": [LEAST_ANNEAL_US, MOST_ANNEAL_US],
        "default_annealing_time": scale.annealing_us,
        "problem_timing_data": scale.published(target.qubits),
        "quota_conversion_rate": 1,
        "tags": [],
    }


def solver_settings(device: Description) -> dict[str, Any]:
    """What the reader of problems has to know of a solver, as JSON."""
    return {
        "target": asdict(target_of(device)),
        "graph_id": graph_id(device),
        "scale": asdict(TimeScale.of(device)) if device.emulated else None,
    }
