"""What QRMI calls things: resource types, payloads, statuses. The `qrmi` package is only imported here, and late."""

from __future__ import annotations

import importlib
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.model import Payload
from qloom.payloads.native import VARIANTS

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

# where vendors name the calibration of a device: IQM, IBM, and whoever follows either
CALIBRATION_KEYS = ("calibration_set_id", "calibration_id", "last_update_date")
CALIBRATED_PARTS = ("dynamic_quantum_architecture", "properties", "configuration")


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
        raise InputError(f"{path} is not TOML") from None  # the message must not show what is in it
    if not all(isinstance(value, str) for value in values.values()):
        raise InputError(f"{path}: every value must be text")
    return values


def payload_of(module: Any, payload: Payload) -> Any:
    """What `task_start` takes."""
    body = payload.value
    if payload.kind == "pulser":
        text = body if isinstance(body, str) else json.dumps(body)
        return module.Payload.PasqalCloud(sequence=text, job_runs=payload.shots)
    if payload.kind == "openqasm3":
        texts = body if isinstance(body, list) else [body]
        pubs = [[text, None, payload.shots] for text in texts]
        primitive = {"pubs": pubs, "version": 2, "support_qiskit": False, "shots": payload.shots, "options": {}}
        return module.Payload.QiskitPrimitive(input=json.dumps(primitive), program_id="sampler")
    variant = body["variant"]
    fields = dict.fromkeys(VARIANTS[variant]) | {k: v for k, v in body.items() if k != "variant"}
    return getattr(module.Payload, variant)(**fields)


def calibration_in(said: Any) -> str | None:
    """The name of a calibration in what a vendor says of its device; None if there is none."""
    if not isinstance(said, dict):
        return None
    parts = [said, *(said[part] for part in CALIBRATED_PARTS if isinstance(said.get(part), dict))]
    return next((str(part[key]) for key in CALIBRATION_KEYS for part in parts if part.get(key)), None)


def state_of(status: Any) -> str:
    """Our word for a `TaskStatus`, whatever it prints as: `TaskStatus.Running`, `Running`."""
    return STATES.get(str(status).rpartition(".")[2], "executing")
