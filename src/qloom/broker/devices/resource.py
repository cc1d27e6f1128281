"""What QRMI calls things: resource types, payloads, statuses. The `qrmi` package is only imported here, and late."""

from __future__ import annotations

import importlib
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from qloom.broker.devices.base import Envelope
from qloom.errors import InputError, PayloadError

# as in QRMI's own configuration: name in Python, payloads that such a resource takes
TYPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ibm-quantum-system": ("IBMQuantumSystem", ("openqasm3", "qrmi")),
    "ibm-quantum-compute-service": ("IBMQuantumComputeService", ("openqasm3", "qrmi")),
    "qiskit-runtime-service": ("IBMQiskitRuntimeService", ("openqasm3", "qrmi")),
    "pasqal-cloud": ("PasqalCloud", ("pulser", "qrmi")),
    "pasqal-local": ("PasqalLocal", ("pulser", "qrmi")),
    "iqm-server": ("IQMServer", ("qrmi",)),
    "alice-bob-felis": ("AliceBobFelis", ("qrmi",)),
    "oqtopus": ("OQTOPUS", ("qrmi",)),
}
STATES = {"Queued": "vendor_queued", "Running": "executing", "Completed": "done", "Failed": "failed",
          "Cancelled": "cancelled"}  # fmt: skip
VARIANTS = {
    "QiskitPrimitive": ("input", "program_id"),
    "PasqalCloud": ("sequence", "job_runs"),
    "AliceBobFelis": ("human_qir", "input_params"),
    "IQMServer": ("iqmjson", "job_type", "use_timeslot", "tag"),
    "Oqtopus": ("job_spec",),
}


def qrmi_module(name: str = "qrmi") -> Any:
    """The package, or a stand-in of it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError("a device of kind qrmi needs qrmi", hint="pip install 'qloom[qrmi]'") from None


def open_resource(module: Any, resource: str, type_name: str, secrets: dict[str, str]) -> Any:
    """The vendor's device; `secrets` are what QRMI else reads from the environment."""
    kind = getattr(module.ResourceType, TYPES[type_name][0], None)
    if kind is None:
        raise InputError(f"this version of qrmi has no resource type {type_name}", hint="pip install -U qrmi")
    if secrets:
        return module.QuantumResource.from_config(resource, kind, secrets)
    return module.QuantumResource(resource, kind)


def read_secrets(path: Path) -> dict[str, str]:
    """Names and values from a TOML file that nobody else can read."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077:
            raise InputError(f"{path} holds secrets and has mode {mode:o}", hint=f"chmod 600 {path}")
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read the secrets in {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise InputError(f"{path} is not TOML") from None  # what is in it is not told
    if not all(isinstance(value, str) for value in values.values()):
        raise InputError(f"{path}: every value must be text")
    return values


def check_native(envelope: Envelope) -> None:
    """Kind `qrmi`: any payload that QRMI knows, as {"variant": ..., its fields}."""
    body = envelope.body
    if not isinstance(body, dict) or body.get("variant") not in VARIANTS:
        raise PayloadError("a qrmi payload has no known variant", hint=f"one of {', '.join(VARIANTS)}")
    fields = VARIANTS[body["variant"]]
    for name, value in body.items():
        if name != "variant" and (name not in fields or not isinstance(value, str | int | bool | None)):
            raise PayloadError(f"a {body['variant']} payload has no field {name!r} of that kind")
    missing = [name for name in fields if name not in body and name not in ("use_timeslot", "tag")]
    if missing:
        raise PayloadError(f"a {body['variant']} payload needs {missing[0]!r}")


def native_work(body: dict[str, Any]) -> tuple[int, int] | None:
    """Circuits and shots of a payload of kind `qrmi`, as the vendor will read them; None if that cannot be told.

    The shots of the envelope do not reach the vendor with such a payload, so they say nothing about its length.
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


def payload_of(module: Any, envelope: Envelope) -> Any:
    """What `task_start` takes."""
    if envelope.kind == "pulser":
        text = envelope.body if isinstance(envelope.body, str) else json.dumps(envelope.body)
        return module.Payload.PasqalCloud(sequence=text, job_runs=envelope.shots)
    if envelope.kind == "openqasm3":
        texts = envelope.body if isinstance(envelope.body, list) else [envelope.body]
        pubs = [[text, None, envelope.shots] for text in texts]
        primitive = {"pubs": pubs, "version": 2, "support_qiskit": False, "shots": envelope.shots, "options": {}}
        return module.Payload.QiskitPrimitive(input=json.dumps(primitive), program_id="sampler")
    variant = envelope.body["variant"]
    fields = dict.fromkeys(VARIANTS[variant]) | {k: v for k, v in envelope.body.items() if k != "variant"}
    return getattr(module.Payload, variant)(**fields)


def state_of(status: Any) -> str:
    """Our word for a `TaskStatus`, whatever it prints as: `TaskStatus.Running`, `Running`."""
    return STATES.get(str(status).rpartition(".")[2], "executing")
