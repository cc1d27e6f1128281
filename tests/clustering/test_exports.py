"""Payloads for gate machines and neutral atoms."""

from __future__ import annotations

import re

import numpy as np
import pytest

from qloom.clustering.encodings import FAR, NEAR, embed, ising, pulser_sequence, qaoa
from qloom.clustering.overlap import cells_of
from qloom.clustering.qubo import graph
from qloom.errors import InputError, PayloadError

CHAIN = [np.array([0, 0, 0, 1, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 1, 2, 2, 2])]


def chain(weighted=True):
    cells = cells_of(CHAIN)
    even = [np.ones(count) for count in cells.cluster_counts]
    return graph(cells, ["kmeans", "dbscan"], None if weighted else even, "tight")


def star(leaves):
    one = np.array([0] * leaves + [-1])
    many = np.array([*range(leaves), -1])
    return graph(cells_of([one, many]), ["single", "kmeans"])


def simulate(text):
    """The probabilities of all outcomes of a circuit of h, rz, rx and cx; bit i of an outcome is qubit i."""
    count = int(re.search(r"qubit\[(\d+)\]", text)[1])
    outcomes = np.arange(2**count)
    state = np.zeros(2**count, complex)
    state[0] = 1
    for line in text.splitlines():
        if line.startswith("h "):
            q = int(re.search(r"\[(\d+)\]", line)[1])
            sign = 1 - 2 * (outcomes >> q & 1)
            state = (state[outcomes ^ (1 << q)] + sign * state) / np.sqrt(2)
        elif line.startswith(("rz", "rx")):
            angle, q = float(re.search(r"\((.*?)\)", line)[1]), int(re.search(r"\[(\d+)\]", line)[1])
            if line.startswith("rz"):
                state = state * np.exp(1j * angle * ((outcomes >> q & 1) - 0.5))
            else:
                state = np.cos(angle / 2) * state - 1j * np.sin(angle / 2) * state[outcomes ^ (1 << q)]
        elif line.startswith("cx"):
            control, target = (int(q) for q in re.findall(r"\[(\d+)\]", line))
            state = state[np.where(outcomes >> control & 1, outcomes ^ (1 << target), outcomes)]
    return np.abs(state) ** 2


def energies(overlaps):
    bits = np.arange(2 ** len(overlaps.clusters))[:, None] >> np.arange(len(overlaps.clusters)) & 1
    overlap = sum(
        (cost * bits[:, a] * bits[:, b] for (a, b), cost in overlaps.penalties.items()), np.zeros(len(bits))
    )
    return overlap - bits @ np.array(overlaps.weights)


def test_spins_have_the_same_minima_as_the_qubo():
    overlaps = chain()
    fields, couplings = ising(overlaps)
    spins = 1 - 2 * (np.arange(2 ** len(fields))[:, None] >> np.arange(len(fields)) & 1)
    values = spins @ np.array(fields) + sum(c * spins[:, a] * spins[:, b] for (a, b), c in couplings.items())
    theirs = energies(overlaps)
    assert (np.isclose(values, values.min()) == np.isclose(theirs, theirs.min())).all()


@pytest.mark.parametrize("weighted", [True, False])
def test_the_circuit_prefers_the_optimum_and_more_so_with_more_layers(weighted):
    overlaps = chain(weighted)
    cost = energies(overlaps)
    best = np.isclose(cost, cost.min())
    guess = best.mean()
    few, many = (simulate(qaoa(overlaps, layers))[best].sum() for layers in (3, 20))
    assert few > 3 * guess
    assert many > few


def test_the_circuit_is_openqasm_3():
    openqasm3 = pytest.importorskip("openqasm3")
    assert openqasm3.parse(qaoa(chain()))


def test_a_machine_that_is_too_small_says_both_sizes():
    with pytest.raises(PayloadError, match="6 variables, the device 5 qubits"):
        qaoa(chain(), device_qubits=5)
    with pytest.raises(InputError, match="at least one layer"):
        qaoa(chain(), layers=0)


@pytest.mark.parametrize("overlaps", [chain(), star(5)], ids=["chain", "star"])
def test_atoms_are_near_where_clusters_overlap(overlaps):
    places = embed(overlaps)
    for a in range(len(places)):
        for b in range(a):
            distance = np.linalg.norm(places[a] - places[b])
            assert distance < NEAR if (b, a) in overlaps.edges else distance > FAR


def test_six_clusters_around_one_cannot_be_embedded():
    with pytest.raises(PayloadError, match=r"not a unit-disk graph: single:0 overlaps with 6 clusters"):
        embed(star(6))


def test_a_graph_that_is_not_found_a_place_for_is_refused():
    random = np.random.default_rng(0)
    dense = graph(cells_of([random.integers(0, 5, 200) for _ in range(2)]), ["kmeans", "single"])
    with pytest.raises(PayloadError, match="no unit-disk layout of 10 clusters was found in 20 tries"):
        embed(dense)


def test_weights_need_local_addressing():
    pulser = pytest.importorskip("pulser")
    with pytest.raises(PayloadError, match="AnalogDevice has no local addressing"):
        pulser_sequence(chain(), "analog")
    assert pulser_sequence(chain(), "analog", ignore_weights=True)
    assert pulser_sequence(chain(weighted=False), "analog")
    text = pulser_sequence(chain(), "digital-analog")
    sequence = pulser.Sequence.from_abstract_repr(text)
    assert len(sequence.register.qubits) == 6
    assert any(name.startswith("dmm") for name in sequence.declared_channels)


def test_a_sequence_for_more_atoms_than_the_device_has():
    pytest.importorskip("pulser")
    labels = np.append(np.arange(90), -1)
    with pytest.raises(PayloadError, match="90 variables, the device AnalogDevice 80 atoms"):
        pulser_sequence(graph(cells_of([labels]), ["kmeans"]), "analog")


def test_without_pulser_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pulser", None)
    monkeypatch.setitem(__import__("sys").modules, "pulser.devices", None)
    with pytest.raises(InputError, match=r"qloom\[pulser\]"):
        pulser_sequence(chain(), "analog")


def test_a_device_nobody_knows():
    with pytest.raises(InputError, match="unknown neutral-atom device 'abacus'"):
        pulser_sequence(chain(), "abacus")
