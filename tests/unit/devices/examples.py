"""What the tests of devices send, and how they look on."""

from __future__ import annotations

import json
import time
from pathlib import Path

from qloom.device import Description
from qloom.devices.answers import SolverAnswers
from qloom.devices.emulated import EmulatedDevice
from qloom.model import Payload, json_text
from qloom.world import UnixClock

ROOT = Path(__file__).resolve().parents[3]
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
    answers = SolverAnswers("annealing", {}, 600.0, None)
    return EmulatedDevice(Description(**{**vars(description), **changed}), answers, UnixClock(), **options)


def delay(seconds=0.05):
    return Payload("delay", None, seconds=seconds)


async def answer_of(device, id):
    """The answer of a task that is done, read."""
    return json.loads(json_text(await device.result(id)))


async def finish(device, id):
    """The states that a task was told to be in, and the last status."""
    states = []
    while not states or states[-1] not in FINAL:
        status = await device.wait(id)
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
