"""The QUBO as a circuit for a gate machine: QAOA in OpenQASM 3 text, ready to run.

Each layer turns every state by its energy (rz on single qubits, cx-rz-cx on overlapping pairs), then mixes (rx).
Angles follow a straight ramp, a fixed schedule that needs no training loop: the energy's angle rises, the
mixer's falls, as in a slow sweep. Whoever wants trained angles can put them in place of these.
"""

from __future__ import annotations

import math

from qloom.clustering.qubo import Graph
from qloom.errors import InputError, PayloadError

RAMP = 0.75  # the largest angle, in units of a typical qubit's energy


def ising(graph: Graph) -> tuple[list[float], dict[tuple[int, int], float]]:
    """The energy in spins: x = (1 - z) / 2, constants left out; z = -1 means chosen."""
    fields = [weight / 2 for weight in graph.weights]
    couplings: dict[tuple[int, int], float] = {}
    for (a, b), penalty in graph.penalties.items():
        couplings[a, b] = penalty / 4
        fields[a] -= penalty / 4
        fields[b] -= penalty / 4
    return fields, couplings


def qaoa(graph: Graph, layers: int = 5, device_qubits: int | None = None) -> str:
    """OpenQASM 3 text; bit i of the result says whether cluster i is chosen."""
    count = len(graph.clusters)
    if count == 0:
        raise InputError("the QUBO has no variables")
    if layers < 1:
        raise InputError(f"QAOA needs at least one layer, not {layers}")
    if device_qubits is not None and count > device_qubits:
        raise PayloadError(f"the QUBO has {count} variables, the device {device_qubits} qubits")
    fields, couplings = ising(graph)
    typical = math.sqrt(sum(value**2 for value in [*fields, *couplings.values()]) / count) or 1.0
    lines = [
        "OPENQASM 3.0;",
        'include "stdgates.inc";',
        *(f"// qubit {i}: {cluster.name}, weight {graph.weights[i]}" for i, cluster in enumerate(graph.clusters)),
        f"qubit[{count}] q;",
        f"bit[{count}] c;",
        *(f"h q[{i}];" for i in range(count)),
    ]
    for layer in range(layers):
        share = (layer + 0.5) / layers
        gamma = RAMP * share / typical
        beta = RAMP * (1 - share)
        lines.append(f"// layer {layer + 1}: gamma {gamma:.6f}, beta {beta:.6f}")
        lines += [f"rz({_angle(2 * gamma * field)}) q[{i}];" for i, field in enumerate(fields) if field]
        for (a, b), coupling in couplings.items():
            lines += [f"cx q[{a}], q[{b}];", f"rz({_angle(2 * gamma * coupling)}) q[{b}];", f"cx q[{a}], q[{b}];"]
        # The start, all plus, is the lowest state of minus the mixer: hence the sign.
        lines += [f"rx({_angle(-2 * beta)}) q[{i}];" for i in range(count)]
    lines.append("c = measure q;")
    return "\n".join(lines) + "\n"


def _angle(value: float) -> str:
    return f"{math.remainder(value, 4 * math.pi):.9f}"
