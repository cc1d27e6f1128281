"""How long QPUs of each technology take: set-up of a task, then seconds per shot.

Sources: superconducting, a fit to QPU seconds measured on Helmi (FiQCI resource-estimator, 2025);
neutral atoms, 0.25 shots a second (Viviani et al., arXiv:2504.10520, figure 1, calibration included);
the others, published figures for machines of the kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from qloom.errors import InputError
from qloom.model import Payload


@dataclass(frozen=True)
class Technology:
    """The time scale of one kind of QPU."""

    name: str
    set_up_s: float
    per_shot_s: float
    payloads: tuple[str, ...]  # that an emulated machine of this kind takes in a job
    most_used: int = 0  # qubits or atoms that its emulator can hold; 0: any

    def seconds(self, payload: Payload) -> float:
        """How long a device of this kind takes for a payload that does not say so itself."""
        return payload.seconds if payload.seconds is not None else self.set_up_s + payload.shots * self.per_shot_s


GATES = ("openqasm3", "qubo")
TECHNOLOGIES = {
    technology.name: technology
    for technology in (
        Technology("superconducting", 2.665, 0.431e-3, GATES, 20),
        Technology("neutral-atoms", 0.0, 4.0, ("pulser", "qubo"), 12),
        Technology("trapped-ion", 0.0, 0.18, GATES, 20),
        Technology("annealer", 0.031, 86e-6, ("qubo",)),
        Technology("photonic", 0.0, 0.3e-6, GATES, 20),
    )
}


def technology(name: str) -> Technology:
    """The technology of that name."""
    try:
        return TECHNOLOGIES[name]
    except KeyError:
        raise InputError(
            f"no QPU technology is called {name!r}", hint=f"choose one of {', '.join(TECHNOLOGIES)}"
        ) from None
