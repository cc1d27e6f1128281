"""Functions that other packages ship run over objects of a job, with one result under every strategy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("dwave.system", reason="NOT TESTED: pip install dwave-system")
pytest.importorskip("joblib", reason="NOT TESTED: pip install 'qloom[joblib]'")
pytest.importorskip("pennylane", reason="NOT TESTED: pip install 'qloom[pennylane]'")
pytest.importorskip("sklearn", reason="NOT TESTED: pip install scikit-learn")

import qloom
from qloom.strategies import STRATEGIES

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "foreign"))
import foreign_programs

SITES = {
    "annealer": qloom.Site(nodes=2, qpus=(qloom.Qpu("qpu", "annealer"),)),
    "chimera": qloom.Site(nodes=2, qpus=(qloom.Qpu("qpu", profile="chimera"),)),
    "gates": qloom.Site(nodes=2, qpus=(qloom.Qpu("qpu", "photonic"),)),
}
EXPECTED = {
    "independent_set": ("annealer", 4),
    "embedded_cut": ("chimera", True),
    "kernel_matrix": ("gates", [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "grid_search": ("annealer", {"C": 1.0, "gamma": 0.1}),
}
PAIRS = [(name, strategy) for number, strategy in enumerate(STRATEGIES) for name in list(EXPECTED)[number % 2 :: 2]]


@pytest.mark.parametrize(("name", "strategy"), PAIRS)
def test_one_result_under_every_strategy_in_virtual_time(name, strategy):
    site, expected = EXPECTED[name]
    program = getattr(foreign_programs, name)
    outcome = qloom.run(program, world="virtual", in_memory=True, site=SITES[site], strategy=strategy)
    assert outcome.result == expected


@pytest.mark.parametrize("name", EXPECTED)
def test_and_on_this_machine(name):
    site, expected = EXPECTED[name]
    assert qloom.run(getattr(foreign_programs, name), in_memory=True, site=SITES[site]).result == expected


def test_a_layer_of_qaoa_has_the_energy_that_pennylane_computes():
    import networkx
    import pennylane as qml

    cost, mixer = qml.qaoa.maxcut(networkx.cycle_graph(3))

    @qml.qnode(qml.device("default.qubit", wires=3))
    def exact():
        for wire in range(3):
            qml.H(wires=wire)
        qml.qaoa.cost_layer(0.5, cost)
        qml.qaoa.mixer_layer(0.5, mixer)
        return qml.expval(cost)

    found = qloom.run(foreign_programs.qaoa_layer, world="virtual", in_memory=True, site=SITES["gates"]).result
    assert found == pytest.approx(float(exact()), abs=0.15)
