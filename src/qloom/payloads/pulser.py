"""Pulser sequences as payloads: their abstract representation, and what a device must know of it beforehand."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from qloom.errors import PayloadError
from qloom.model import Payload

KEYS = ("version", "name", "register", "channels", "variables", "operations", "measurement", "device")
HINT = "Sequence.to_abstract_repr() makes it"
WAVEFORMS = ("amplitude", "detuning", "waveform")
TIMES = ("time", "duration")
LONGEST_NS = 10**15  # nobody has to know more exactly
LOCAL_OPERATIONS = ("target", "config_detuning_map", "add_dmm_detuning", "config_slm_mask")


def read_sequence(body: Any) -> dict[str, Any]:
    """The sequence as a dictionary; raises `PayloadError`."""
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            raise PayloadError("the Pulser sequence is not JSON", hint=HINT) from None
    if not isinstance(body, Mapping):
        raise PayloadError(f"a Pulser sequence cannot be read from a {type(body).__name__}", hint=HINT)
    missing = [key for key in KEYS if key not in body]
    if missing:
        raise PayloadError(f"the Pulser sequence has no {missing[0]!r}", hint=HINT)
    if str(body["version"]) != "1":
        raise PayloadError(f"the Pulser sequence is of version {body['version']!r}, not 1", hint=HINT)
    for key, kind in (("register", list), ("channels", Mapping), ("variables", Mapping), ("operations", list)):
        if not isinstance(body[key], kind):
            raise PayloadError(f"the Pulser sequence's {key} is a {type(body[key]).__name__}", hint=HINT)
    if not isinstance(body["device"], Mapping | str):
        raise PayloadError("the Pulser sequence names no device", hint=HINT)
    if not all(
        isinstance(operation, Mapping) and isinstance(operation.get("op"), str) for operation in body["operations"]
    ):
        raise PayloadError("the Pulser sequence has an operation without 'op'", hint=HINT)
    _check_register(body["register"])
    if body["variables"]:
        names = ", ".join(str(name) for name in body["variables"])
        raise PayloadError(f"the Pulser sequence has open variables: {names}", hint="sequence.build(...) first")
    if body["measurement"] is None:
        raise PayloadError("the Pulser sequence measures nothing", hint="sequence.measure()")
    return dict(body)


def local_part(sequence: Mapping[str, Any]) -> str | None:
    """What in a sequence drives atoms one by one; None if all of it is global."""
    addressing = {}
    if isinstance(sequence["device"], Mapping):
        listed = sequence["device"].get("channels") or []
        addressing = {
            str(channel.get("id")): channel.get("addressing") for channel in listed if isinstance(channel, Mapping)
        }
    for channel in sequence["channels"].values():
        if addressing.get(str(channel), "Local" if "local" in str(channel) else "Global") == "Local":
            return f"channel {channel}"
    for operation in sequence["operations"]:
        if operation["op"] in LOCAL_OPERATIONS:
            return f"operation {operation['op']}"
    return None


def duration_ns(sequence: Mapping[str, Any]) -> int:
    """All pulses and delays one after the other. What a device adds between them is for the solver to see."""
    return min(sum(_operation_ns(operation) for operation in sequence["operations"]), LONGEST_NS)


def _operation_ns(operation: Mapping[str, Any]) -> int:
    waveforms = [_waveform_ns(operation[part]) for part in WAVEFORMS if part in operation]
    return max(waveforms, default=0) + sum(_whole_ns(operation[part]) for part in TIMES if part in operation)


def _waveform_ns(waveform: Any) -> int:
    if not isinstance(waveform, Mapping):
        raise PayloadError("the Pulser sequence has a waveform that is none", hint=HINT)
    parts = waveform.get("waveforms")
    if isinstance(parts, list):
        return sum(_waveform_ns(part) for part in parts)
    if isinstance(samples := waveform.get("samples"), list):
        return len(samples)
    if "duration" in waveform:
        return _whole_ns(waveform["duration"])
    area, largest = waveform.get("area"), waveform.get("max_val")  # it lasts as long as the area needs
    if not (isinstance(area, int | float) and isinstance(largest, int | float) and largest):
        raise PayloadError("the Pulser sequence has a waveform of unknown nanoseconds", hint=HINT)
    return _whole_ns(min(abs(area / largest) * 1e3, float(LONGEST_NS)))


def _whole_ns(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise PayloadError("the Pulser sequence has a duration that is not a number of nanoseconds", hint=HINT)
    return min(int(value), LONGEST_NS)


def register_key(sequence: Mapping[str, Any]) -> str:
    """The same for sequences on the same atoms at the same places."""
    text = json.dumps(sequence["register"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_register(register: list[Any]) -> None:
    if not register:
        raise PayloadError("the Pulser sequence has no atoms")
    names = []
    for atom in register:
        if not isinstance(atom, Mapping) or "name" not in atom:
            raise PayloadError("the Pulser sequence has an atom without a name", hint=HINT)
        if "x" not in atom or "y" not in atom:
            raise PayloadError(f"atom {atom['name']} has no place", hint="sequence.build(qubits={...}) first")
        for axis in ("x", "y", "z"):
            place = atom.get(axis, 0.0)
            if isinstance(place, bool) or not isinstance(place, int | float) or not math.isfinite(place):
                raise PayloadError(f"atom {atom['name']}: {axis} must be a finite number of micrometres")
        names.append(str(atom["name"]))
    if len(dict.fromkeys(names)) != len(names):
        raise PayloadError("the Pulser sequence has two atoms of one name")


def adapt(sequence: Any, values: Any = None) -> Payload:
    """A `pulser.Sequence`; `values` are its run parameters by name, and `qubits` for a mappable register."""
    if not hasattr(sequence, "to_abstract_repr"):
        raise PayloadError(f"a Pulser {type(sequence).__name__} is no sequence", hint="give a pulser.Sequence")
    if values is not None and not isinstance(values, Mapping):
        raise PayloadError("the run parameters of a sequence are a table", hint='(sequence, {"name": value})')
    if values is None and (sequence.is_parametrized() or sequence.is_register_mappable()):
        names = ", ".join(sequence.declared_variables) or "qubits"
        raise PayloadError(f"the sequence has unbound parameters: {names}", hint="give (sequence, {name: value})")
    try:
        built = sequence.build(**dict(values)) if values else sequence
        body = built.to_abstract_repr()
    except Exception as error:  # Pulser has many kinds
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise PayloadError(f"the Pulser sequence cannot be written: {said}") from None
    return Payload("pulser", body, name="sequence")
