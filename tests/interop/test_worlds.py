"""VQE and QAOA give one result under every strategy in every world, also when they are killed on the way.

Here is a cover: every strategy in every world, with programs in turn. `python -m benchmarks.qiskit_matrix` runs all.
"""

from __future__ import annotations

import pytest

pytest.importorskip("qiskit", reason="NOT TESTED: pip install 'qloom[qiskit]'")
pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[qiskit]'")

import qloom
from qloom.journal.events import QuantumEnded
from qloom.strategies import STRATEGIES
from tests.broker.processes import Service
from tests.interop.cover import IN_TURN, OTHERS, PROGRAMS, SMALL
from tests.interop.killed import DeviceCounter, check_executed, kill_and_resume

SITE = qloom.Site(nodes=2, qpus=(qloom.Qpu("gates", "photonic"),))
GATES = {"kind": "qaoa", "name": "gates", "set_up_s": 0.0, "per_shot_s": 0.0}


def result_of(name, **plan):
    return qloom.run(f"{PROGRAMS}:{name}", parameters=SMALL[name], in_memory=True, **{"site": SITE, **plan}).result


@pytest.fixture(scope="module")
def expected():
    return {name: result_of(name, world="virtual") for name in SMALL}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_in_virtual_time(strategy, name, expected):
    assert result_of(name, world="virtual", strategy=strategy) == expected[name]


@pytest.mark.parametrize(
    ("strategy", "name"),
    [pair if pair[0] == "weave" else pytest.param(*pair, marks=pytest.mark.slow) for pair in IN_TURN],
)
def test_on_this_machine(strategy, name, expected):
    assert result_of(name, strategy=strategy) == expected[name]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = Service(tmp_path_factory.mktemp("broker"), "tests.broker.plain", devices=[GATES])
    service.start()
    yield service
    assert service.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "name"), OTHERS)
def test_through_a_broker(strategy, name, expected, service):
    assert result_of(name, strategy=strategy, site=qloom.Site(nodes=2, broker=service.address)) == expected[name]


@pytest.mark.parametrize("through", ["this machine", pytest.param("a broker", marks=pytest.mark.slow)])
def test_killed_at_several_moments_devices_execute_again_what_was_out_and_nothing_else(
    through, qloom_home, tmp_path, monkeypatch
):
    """Counted where the device's answers are computed, over all lives of the run."""
    counter = DeviceCounter(tmp_path, monkeypatch)
    plain = qloom.run(f"{PROGRAMS}:vqe", world="virtual", in_memory=True, site=SITE, parameters=SMALL["vqe"])
    site = tmp_path / "site.toml"
    site.write_text('nodes = 1\n[[qpus]]\nname = "gates"\ntechnology = "photonic"\n')
    service = Service(tmp_path, "tests.broker.plain", devices=[GATES])
    if through == "a broker":
        service.start()
        site.write_text(f'nodes = 1\nbroker = "{service.address}"\n')
    words = ["run", f"{PROGRAMS}:vqe", "--site", str(site), "--set", "maxiter=12"]
    try:
        printed, directory, out = kill_and_resume(qloom_home, tmp_path / "output", words)
    finally:
        if service.process is not None:
            service.stop()
    assert float(printed) == plain.result
    assert len(counter.executed()) == len([e for e in plain.events if isinstance(e, QuantumEnded)])
    check_executed(counter, directory, out)
    assert sum(out.values()) > 0  # at least the first kill came while a task was out
