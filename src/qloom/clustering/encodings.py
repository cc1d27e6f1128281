"""The QUBO for machines that are not annealers: a QAOA circuit for gates, a Pulser sequence for neutral atoms.

*Gates.* OpenQASM 3 text, ready to run. Each layer turns every state by its energy (rz on single qubits, cx-rz-cx on
overlapping pairs), then mixes (rx). Angles follow a straight ramp, a fixed schedule that needs no training loop: the
energy's angle rises, the mixer's falls, as in a slow sweep. Trained angles can replace these.

*Neutral atoms.* Atoms stand for clusters; overlapping ones block each other. A slow sweep of the detuning from below
to above resonance ends in a large independent set of excited atoms. Weights need a separate detuning for each atom:
a device without local addressing refuses them, unless the user says to ignore them. Atoms block each other within one
radius, so a graph fits only if it is a unit-disk graph. That is hard to decide: a proof of the contrary is looked for
first, then a layout by descent from a few starts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.answer import heaviest
from qloom.clustering.qubo import Graph
from qloom.errors import InputError, PayloadError

RAMP = 0.75  # the largest angle, in units of a typical qubit's energy
DEVICES = {"analog": "AnalogDevice", "digital-analog": "DigitalAnalogDevice", "mock": "MockDevice"}
SWEEP_NS = 4000
NEAR, FAR, CLOSEST = 1.0, 1.15, 0.5  # bounds on distances: overlapping pairs, other pairs, any pair
STARTS = 20
NEIGHBOURS = 5  # a disk can touch at most five others that do not touch each other


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


def pulser_sequence(graph: Graph, device: str = "analog", *, ignore_weights: bool = False, seed: int = 0) -> str:
    """The sequence as JSON text, checked against the device."""
    target = _device(device)
    count = len(graph.clusters)
    if target.max_atom_num is not None and count > target.max_atom_num:
        raise PayloadError(f"the QUBO has {count} variables, the device {target.name} {target.max_atom_num} atoms")
    even = max(graph.weights) - min(graph.weights) < 1e-6
    local = not even and not ignore_weights
    if local and not target.dmm_channels:
        raise PayloadError(
            f"the clusters have different weights, and {target.name} has no local addressing",
            hint="--ignore-weights treats all clusters alike; --device digital-analog has local addressing",
        )
    layout = embed(graph, seed)
    register, blockade_um = _register(target, layout, graph)
    return _sweep(target, register, blockade_um, graph.weights if local else None)


def _device(name: str) -> Any:
    if name not in DEVICES:
        raise InputError(f"unknown neutral-atom device {name!r}", hint=", ".join(DEVICES))
    try:
        import pulser.devices
    except ImportError:
        raise InputError("Pulser is not installed", hint='pip install "qloom[pulser]"') from None
    return vars(pulser.devices)[DEVICES[name]]


def _register(target: Any, layout: NDArray[np.float64], graph: Graph) -> tuple[Any, float]:
    """The layout in micrometres: as tight as the device allows, with a blockade radius that its laser can make."""
    import pulser

    apart = np.hypot(*(layout[:, None] - layout[None]).transpose(2, 0, 1))
    np.fill_diagonal(apart, np.inf)
    overlapping = np.zeros_like(apart, bool)
    for a, b in graph.edges:
        overlapping[a, b] = overlapping[b, a] = True
    nearest_other = float(apart[~overlapping].min(initial=np.inf))
    farthest_pair = float(apart[overlapping].max(initial=0.0))
    radius = np.sqrt(farthest_pair * nearest_other) if farthest_pair > 0 and nearest_other < np.inf else 1.05
    strongest = target.channels["rydberg_global"].max_amp or 2 * np.pi
    scale = max(
        1.01 * (target.min_atom_distance or 1.0) / float(apart.min()),
        target.rydberg_blockade_radius(strongest) / radius,
    )
    reach = scale * float(np.hypot(*layout.T).max())
    if target.max_radial_distance is not None and reach > target.max_radial_distance:
        raise PayloadError(
            f"the layout is {reach:.0f} um from its middle to its edge, {target.name} allows "
            f"{target.max_radial_distance} um"
        )
    register = pulser.Register({f"q{i}": scale * place for i, place in enumerate(layout)})
    if target.requires_layout:
        register = register.with_automatic_layout(target)
    return register, scale * radius


def _sweep(target: Any, register: Any, blockade_um: float, weights: tuple[float, ...] | None) -> str:
    import pulser
    from pulser.waveforms import InterpolatedWaveform, RampWaveform

    rabi = float(target.rabi_from_blockade(blockade_um))
    sequence = pulser.Sequence(register, target)
    sequence.declare_channel("global", "rydberg_global")
    if weights is not None:
        held_back = {f"q{i}": float(1 - weight) for i, weight in enumerate(weights)}
        sequence.config_detuning_map(register.define_detuning_map(held_back), "dmm_0")
    drive = InterpolatedWaveform(SWEEP_NS, [1e-9, rabi * 0.99, 1e-9])
    sequence.add(pulser.Pulse(drive, RampWaveform(SWEEP_NS, -rabi, rabi), 0.0), "global")
    if weights is not None:  # at the end each atom's detuning is its weight's share of the whole
        sequence.add_dmm_detuning(RampWaveform(SWEEP_NS, 0.0, -rabi), "dmm_0")
    sequence.measure("ground-rydberg")
    text: str = sequence.to_abstract_repr()
    return text


def embed(graph: Graph, seed: int = 0) -> NDArray[np.float64]:
    """Coordinates (clusters, 2) with overlapping pairs within NEAR and all others beyond FAR."""
    from scipy.optimize import minimize

    _refuse_star(graph)
    count = len(graph.clusters)
    first, second = np.triu_indices(count, 1)
    overlaps = set(graph.edges)
    joined = np.array([(int(a), int(b)) in overlaps for a, b in zip(first, second, strict=True)], bool)
    low = np.where(joined, CLOSEST, FAR) * 1.01
    high = np.where(joined, NEAR, np.inf) / 1.01
    random = np.random.default_rng(seed)
    worst = np.inf
    for _ in range(STARTS):
        start = random.normal(0, 0.6 * np.sqrt(count), 2 * count)
        found = minimize(_strain, start, (first, second, low, high), jac=True, method="L-BFGS-B",
                         options={"maxiter": 2000})  # fmt: skip
        if found.fun < 1e-9:
            coordinates: NDArray[np.float64] = found.x.reshape(count, 2)
            coordinates -= coordinates.mean(axis=0)
            return coordinates
        worst = min(worst, float(found.fun))
    raise PayloadError(
        f"no unit-disk layout of {count} clusters was found in {STARTS} tries (strain {worst:.2g} is left)",
        hint="use --to qaoa, or fewer clusterings",
    )


def _refuse_star(graph: Graph) -> None:
    around: list[list[int]] = [[] for _ in graph.clusters]
    for a, b in graph.edges:
        around[a].append(b)
        around[b].append(a)
    for cluster, others in enumerate(around):
        place = {other: i for i, other in enumerate(others)}
        pairs = [(place[a], place[b]) for a, b in graph.edges if a in place and b in place]
        apart = heaviest([1.0] * len(others), pairs) if len(others) > NEIGHBOURS else []
        if len(apart) > NEIGHBOURS:
            raise PayloadError(
                f"the overlap graph is not a unit-disk graph: {graph.clusters[cluster].name} overlaps with "
                f"{len(apart)} clusters that are apart from each other, and at most {NEIGHBOURS} fit around an atom",
                hint="use --to qaoa",
            )


def _strain(
    flat: NDArray[Any], first: NDArray[Any], second: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> tuple[float, NDArray[Any]]:
    """Squares of how far pairs are out of bounds, and the gradient."""
    points = flat.reshape(-1, 2)
    apart = points[first] - points[second]
    distance = np.maximum(np.hypot(apart[:, 0], apart[:, 1]), 1e-12)
    out = np.maximum(distance - high, 0.0) - np.maximum(low - distance, 0.0)
    push = (2 * out / distance)[:, None] * apart
    gradient = np.zeros_like(points)
    np.add.at(gradient, first, push)
    np.add.at(gradient, second, -push)
    return float((out * out).sum()), gradient.ravel()
