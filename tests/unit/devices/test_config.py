"""Devices from a config: kinds, profiles, schema, and one clear line for what is wrong."""

from __future__ import annotations

import asyncio

import jsonschema
import pytest

from qloom.device import STATES
from qloom.devices.factory import DEVICES, make_device
from qloom.devices.profiles import load_profile, profile_names
from qloom.devices.schema import describe, device_schema, schema_text
from qloom.errors import InputError, PayloadError
from qloom.model import Payload
from tests.unit.devices.examples import QUBO, ROOT


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
    assert published.read_text() == schema_text(), "run: python -m qloom.devices.schema > " + str(published)


def test_the_two_machines_and_what_an_emulator_makes_of_them():
    gates, atoms = load_profile("leonardo-iqm"), load_profile("leonardo-pasqal")
    assert (gates.qubits, gates.technology, gates.local_addressing) == (54, "superconducting", True)
    assert (atoms.qubits, atoms.technology, atoms.local_addressing) == (140, "neutral-atoms", False)
    emulated = make_device({"kind": "annealing", "profile": "leonardo-pasqal"})
    assert emulated.description.qubits == 140
    assert emulated.seconds(Payload("qubo", QUBO, shots=100)) == 400
    with pytest.raises(PayloadError, match="has 141 variables, leonardo-pasqal takes up to 140"):
        emulated.check(Payload("qubo", {"linear": [[i, 1.0] for i in range(141)]}))
    twice = {"kind": "process", "device": {"kind": "qaoa", "profile": "leonardo-iqm"}}
    assert make_device(twice).description.qubits == 20  # what it can hold, not what the machine has


WRONG = [
    ({"kind": "warp"}, "unknown kind of device 'warp'"),
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
    ("kind", "module", "extra"), [("qaoa", "qiskit_aer", "qiskit"), ("pulser", "pulser", "pulser")]
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
    assert [kind for kind in DEVICES if f"`{kind}`" not in page] == []
    assert [name for name in profile_names() if f"`{name}`" not in page] == []
