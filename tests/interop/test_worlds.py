"""VQE and QAOA give one result under every strategy in every world, also when they are killed on the way.

Here is a cover: every strategy in every world, with programs in turn. `python -m benchmarks.qiskit_matrix` runs all.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("qiskit", reason="NOT TESTED: pip install 'qloom[qiskit]'")
pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[qiskit]'")

import qloom
from qloom.journal.events import QuantumEnded, QuantumStarted
from qloom.journal.file import FILE_NAME, read_events
from qloom.strategies import STRATEGIES
from tests.broker.processes import Service
from tests.interop.cover import IN_TURN, OTHERS, PROGRAMS, SMALL

SITE = qloom.Site(nodes=2, qpus=(qloom.Qpu("gates", "photonic"),))
QLOOM = str(Path(sys.executable).with_name("qloom"))
DEADLINE_S = 120


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
    device = {"kind": "qaoa", "name": "gates", "set_up_s": 0.0, "per_shot_s": 0.0}
    service = Service(tmp_path_factory.mktemp("broker"), "tests.broker.plain", devices=[device])
    service.start()
    yield service
    assert service.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "name"), OTHERS)
def test_through_a_broker(strategy, name, expected, service):
    assert result_of(name, strategy=strategy, site=qloom.Site(nodes=2, broker=service.address)) == expected[name]


def start(output, *arguments):
    with open(output, "w") as file:
        return subprocess.Popen([QLOOM, *arguments, "--quiet"], stdout=file, stderr=subprocess.STDOUT)


def executions(directory):
    """How often each task was begun on a device, and which have ended."""
    begun, done = {}, set()
    for event in read_events(directory):
        if isinstance(event, QuantumStarted):
            begun[event.work] = begun.get(event.work, 0) + 1
        elif isinstance(event, QuantumEnded) and event.state == "done":
            done.add(event.work)
    return begun, done


def killed_after(home, running, ended):
    """Kill the run when so many quantum tasks have ended; the directory of the run."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        journals = sorted(home.glob(f"runs/*/{FILE_NAME}"))
        if journals and journals[-1].read_bytes().count(b'"quantum_ended"') >= ended:
            running.kill()
            assert running.wait() == -signal.SIGKILL
            return journals[-1].parent
        assert running.poll() is None, "the run was over before it was killed"
        time.sleep(0.002)
    raise AssertionError(f"there were never {ended} ended quantum tasks")


def test_killed_and_resumed_devices_execute_what_was_out_and_nothing_else_again(qloom_home, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text('nodes = 1\n[[qpus]]\nname = "gates"\ntechnology = "photonic"\n')
    few = ["--site", str(site), "--set", "maxiter=12"]
    plain = qloom.run(
        f"{PROGRAMS}:vqe", world="virtual", site=qloom.Site(nodes=1, qpus=SITE.qpus), parameters=SMALL["vqe"]
    )
    expected, _ = executions(plain.directory)
    output = tmp_path / "output"
    running = start(output, "run", f"{PROGRAMS}:vqe", *few)
    directory = killed_after(qloom_home, running, 5)
    begun, done = executions(directory)
    out = [work for work in begun if work not in done]
    assert len(done) >= 5
    assert start(output, "resume", directory.name).wait(timeout=DEADLINE_S) == 0, output.read_text()
    assert float(output.read_text()) == plain.result
    both, _ = executions(directory)
    assert both == {work: 2 if work in out else 1 for work in expected}
