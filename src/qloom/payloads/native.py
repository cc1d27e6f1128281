"""Kind `qrmi`: any payload that QRMI knows, as {"variant": ..., its fields}."""

from __future__ import annotations

import json
from typing import Any

from qloom.errors import PayloadError

VARIANTS = {
    "QiskitPrimitive": ("input", "program_id"),
    "PasqalCloud": ("sequence", "job_runs"),
    "AliceBobFelis": ("human_qir", "input_params"),
    "IQMServer": ("iqmjson", "job_type", "use_timeslot", "tag"),
    "Oqtopus": ("job_spec",),
}


def read_native(body: Any) -> dict[str, Any]:
    """The payload; raises `PayloadError` if QRMI has no such variant or field."""
    if not isinstance(body, dict) or body.get("variant") not in VARIANTS:
        raise PayloadError("a qrmi payload has no known variant", hint=f"one of {', '.join(VARIANTS)}")
    fields = VARIANTS[body["variant"]]
    for name, value in body.items():
        if name != "variant" and (name not in fields or not isinstance(value, str | int | bool | None)):
            raise PayloadError(f"a {body['variant']} payload has no field {name[:100]!r} of that kind")
    missing = [name for name in fields if name not in body and name not in ("use_timeslot", "tag")]
    if missing:
        raise PayloadError(f"a {body['variant']} payload needs {missing[0]!r}")
    return body


def native_work(body: dict[str, Any]) -> tuple[int, int] | None:
    """Circuits and shots of a payload of kind `qrmi`, as the vendor will read them; None if that is not known.

    The shots of the payload do not reach the vendor with such a payload, so they say nothing about its length.
    """
    if body["variant"] == "PasqalCloud":
        return _work(1, body["job_runs"])
    try:
        if body["variant"] == "QiskitPrimitive":
            return _primitive_work(json.loads(body["input"]), str(body["program_id"]))
        if body["variant"] == "IQMServer":
            request = json.loads(body["iqmjson"])
            return _work(len(request["circuits"]), request["shots"])
        if body["variant"] == "AliceBobFelis":
            return _work(1, json.loads(body["input_params"])["nbShots"])
        request = json.loads(body["job_spec"])
        return _work(len(request["job_info"]["program"]), request["shots"])
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def _work(circuits: int, shots: Any) -> tuple[int, int] | None:
    whole = isinstance(shots, int) and not isinstance(shots, bool) and shots >= 1
    return (max(1, circuits), shots) if whole else None


def _primitive_work(primitive: dict[str, Any], program: str) -> tuple[int, int] | None:
    """Of a sampler: each of its pubs is a circuit, perhaps with several sets of values, and perhaps with shots."""
    if program != "sampler":
        return None  # the shots of an estimator follow from the precision and the device
    usual = primitive.get("shots") or primitive.get("options", {}).get("default_shots")
    circuits, most = 0, 0
    for pub in primitive["pubs"]:
        values, shots = (pub[1] if len(pub) > 1 else None), (pub[2] if len(pub) > 2 else None) or usual
        if _work(1, shots) is None or not (values is None or isinstance(values, list)):
            return None
        sets = values if values and isinstance(values[0], list) else [None]
        if any(isinstance(one, list) and one and isinstance(one[0], list) for one in sets):
            return None  # sets of sets: nothing that a client sends
        circuits, most = circuits + len(sets), max(most, shots)
    return _work(circuits, most)
