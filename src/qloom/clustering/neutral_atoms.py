"""The QUBO as a sequence for a neutral-atom machine, in Pulser's abstract representation.

Atoms stand for clusters; overlapping ones block each other. A slow sweep of the detuning from below to above
resonance ends in a large independent set of excited atoms. Weights need a detuning of their own for each atom:
on a device without local addressing they are refused, or ignored if the user says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.clustering.qubo import Graph
from qloom.clustering.unitdisk import embed
from qloom.errors import InputError, PayloadError

DEVICES = {"analog": "AnalogDevice", "digital-analog": "DigitalAnalogDevice", "mock": "MockDevice"}
SWEEP_NS = 4000


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
        raise InputError(f"there is no neutral-atom device {name!r}", hint=", ".join(DEVICES))
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
