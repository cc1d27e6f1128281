"""What emulated devices compute, each in `solve(request) -> answer`: JSON in, JSON out, in a process of its own."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from qloom.errors import InputError, PayloadError

# solver: modules that must be there, and the extra that brings them
NEEDS: dict[str, tuple[tuple[str, ...], str]] = {
    "annealing": ((), ""),
    "exact": ((), ""),
    "aer": (("qiskit", "qiskit_aer", "qiskit_qasm3_import"), "qiskit"),
    "qaoa": (("qiskit", "qiskit_aer", "qiskit_qasm3_import"), "qiskit"),
    "pulser": (("pulser", "pulser_simulation"), "pulser"),
}


# options of a payload that a solver knows
OPTIONS: dict[str, tuple[str, ...]] = {
    "annealing": ("num_sweeps", "beta_range"),
    "exact": ("time_limit_s",),
    "aer": (),
    "qaoa": ("layers",),
    "pulser": (),
}
SOLVERS = {"qubo": "annealing", "openqasm3": "aer", "pulser": "pulser"}  # for a payload that may run on any


def require(solver: str) -> None:
    """Raise `InputError` if what this solver needs is not installed here."""
    modules, extra = NEEDS[solver]
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise InputError(f"a device of kind {solver} needs {missing[0]}", hint=f"pip install 'qloom[{extra}]'")


def solve(solver: str, request: dict[str, Any]) -> Any:
    """The answer to one request: `kind`, `body`, `shots`, `seed` and `options`."""
    if solver not in NEEDS:
        raise InputError(f"there is no solver {solver!r}")
    require(solver)
    return importlib.import_module(f"qloom.devices.solvers.{solver}").solve(request)


def seed_of(request: dict[str, Any]) -> int:
    """What samplers take: 31 bits."""
    return int(request["seed"]) % 2**31


def check_limit(request: dict[str, Any], limit: str, value: int, what: str) -> None:
    """Hold to a limit of the device; what a solver has compiled says more than any check before it."""
    most = request.get("limits", {}).get(limit)
    if most is not None and value > most:
        raise PayloadError(f"{what.format(value)}, and the device takes up to {most} ({limit})")
