"""Runs whose QPUs are behind a broker: the programs of the contract through a real service, which may be killed."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import qloom
from qloom import qubo
from qloom.broker.client.sync import SyncBrokerClient
from qloom.broker.problems import NoBroker
from qloom.broker.store.database import Database
from qloom.broker.store.schema import integrity
from qloom.errors import InputError, JournalError, PayloadError, TaskFailed
from qloom.journal import home
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.site import Site
from qloom.testing import programs
from qloom.testing.contracts import expected
from tests.broker.processes import Service
from tests.journals import as_lines

HOLDS = {"offload": "task", "vqpu": "share", "coschedule": "whole"}
TWO = [{"kind": "annealing", "name": "q"}, {"kind": "exact", "name": "e"}]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    running = Service(tmp_path_factory.mktemp("b"), module="tests.broker.plain", devices=TWO)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def client(service):
    with SyncBrokerClient(service.address, retry_s=5.0) as connected:
        yield connected


def run(service, program, strategy="offload", **more):
    site = Site(broker=service.address)
    return qloom.run(programs.source(program), strategy=strategy, site=site, in_memory=True, **more)


def nothing_is_left(client) -> bool:
    """Whether the broker has no session and no task; what was stopped may take a moment."""
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        counts = [sum(value for key, value in view.items() if key != "device") for view in client.queue()["devices"]]
        if not any(counts):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("strategy", HOLDS)
@pytest.mark.parametrize(
    "program", [programs.loop, programs.three_at_once, programs.block_of_five, programs.candidate]
)
def test_the_same_result_as_in_process_and_nothing_left(service, client, strategy, program):
    outcome = run(service, program, strategy)
    assert outcome.errors == []
    assert outcome.result == expected(program)
    history = read_history(outcome.events)
    assert all(interval.state != "open" for interval in history.intervals)
    quantum = [event for event in as_lines(outcome.events) if event["event"].startswith("quantum_")]
    assert [event["hold"] for event in quantum if event["event"] == "quantum_queued"]
    if program is programs.loop:
        names = [event["event"].removeprefix("quantum_") for event in quantum]
        assert names == ["queued", "started", "ended"] * 3
        assert {event["hold"] for event in quantum if "hold" in event} == {HOLDS[strategy]}
    assert nothing_is_left(client)


def test_jobs_of_a_run_share_the_devices_of_the_broker(service, client):
    outcome = run(service, programs.loop, "vqpu", jobs=2)
    assert outcome.results == [expected(programs.loop)] * 2
    assert [qpu["name"] for qpu in outcome.events[0].site["qpus"]] == ["q", "e"]
    assert nothing_is_left(client)


async def fails_meanwhile(job):
    answer = job.quantum(qloom.delay(60.0))
    await job.classical(programs.square(1, 0.3))
    await job.classical(programs.fails("no luck"))
    await answer


@pytest.mark.parametrize("strategy", HOLDS)
def test_a_failing_program_takes_its_quantum_task_back(service, client, strategy):
    outcome = qloom.run(fails_meanwhile, strategy=strategy, site=Site(broker=service.address), in_memory=True)
    assert [type(error) for error in outcome.errors] == [TaskFailed]
    [ended] = [event for event in as_lines(outcome.events) if event["event"] == "quantum_ended"]
    assert ended["state"] == "cancelled"
    assert nothing_is_left(client)


def test_a_block_goes_on_without_a_device_that_somebody_else_holds(service, client, monkeypatch):
    monkeypatch.setattr("qloom.job.qpu.BLOCK_PATIENCE_S", 0.2)
    held = [client.open_session(device, "whole") for device in ("q", "e")]
    timer = threading.Timer(1.0, lambda: [client.close_session(view["id"]) for view in held])
    timer.start()
    outcome = run(service, programs.block_of_five, "offload")
    timer.join()
    assert outcome.result == expected(programs.block_of_five)
    assert {event["hold"] for event in as_lines(outcome.events) if event["event"] == "quantum_queued"} == {"task"}
    assert nothing_is_left(client)


def test_a_candidate_runs_classically_while_the_devices_are_drained(service, client):
    for device in ("q", "e"):
        client.drain(device)
    outcome = run(service, programs.candidate)
    for device in ("q", "e"):
        client.drain(device, False)
    assert outcome.result == [36, 4]
    [choice] = [event for event in as_lines(outcome.events) if event["event"] == "candidate"]
    assert choice["choice"] == "classical"


async def labelled(job):
    return await job.quantum({(("x", 1), ("x", 1)): -1.0, (2, 2): 1.0}, shots=5, expected_s=0.0)


async def too_large(job):
    return await job.quantum({(n, n): 1.0 for n in range(6000)}, device="q")


async def no_json(job):
    return await job.quantum(qloom.delay(0.0, answer={1, 2}))


def test_variables_may_be_any_label(service):
    sample = qloom.run(labelled, site=Site(broker=service.address), in_memory=True).result
    assert (dict(sample.values), sample.energy) == ({("x", 1): 1, 2: 0}, -1.0)


@pytest.mark.parametrize(
    ("program", "message"),
    [(too_large, "the QUBO has 6000 variables, q takes up to 5000"), (no_json, "only JSON passes through a broker")],
)
def test_what_the_broker_refuses_is_one_line(service, program, message):
    [error] = qloom.run(program, site=Site(broker=service.address), in_memory=True).errors
    assert isinstance(error, PayloadError)
    assert message in error.message
    assert error.job == "j1"


COMMAND = """
    name = "own"
    [[phase]]
    kind = "quantum"
    command = ["sh", "-c", "echo $QLOOM_QPU; echo {{{{}}}} > devices.json; exit {code}"]
    outputs = ["devices.json"]
    {device}
"""


def write_command(tmp_path, *, code=0, device="") -> str:
    (tmp_path / "job.toml").write_text(textwrap.dedent(COMMAND.format(code=code, device=device)))
    return str(tmp_path / "job.toml")


@pytest.mark.parametrize("strategy", HOLDS)
def test_a_quantum_command_runs_while_its_job_holds_the_device(service, client, tmp_path, strategy):
    program = write_command(tmp_path, device='device = "e"')
    outcome = qloom.run(program, strategy=strategy, site=Site(broker=service.address))
    assert outcome.errors == []
    (log,) = (outcome.directory / "logs" / "j1").iterdir()
    assert log.read_text() == "e\n"
    queued = next(event for event in as_lines(outcome.events) if event["event"] == "quantum_queued")
    assert queued["hold"] == ("share" if strategy == "vqpu" else "whole")
    assert nothing_is_left(client)


def test_a_quantum_command_that_fails_leaves_no_session(service, client, tmp_path):
    [error] = qloom.run(write_command(tmp_path, code=3), site=Site(broker=service.address), in_memory=True).errors
    assert "task quantum-1 exited with 3" in error.message
    assert nothing_is_left(client)


def test_a_quantum_command_for_a_device_that_is_not_there_is_one_line(service, tmp_path):
    program = write_command(tmp_path, device='device = "nobody"')
    [error] = qloom.run(program, site=Site(broker=service.address), in_memory=True).errors
    assert str(error) == "job j1: no QPU is called 'nobody' (there is: q, e)"


def test_no_broker_and_no_virtual_broker(tmp_path):
    with pytest.raises(NoBroker, match="no broker answers at unix:"):
        qloom.run("phases", site=Site(broker=f"{tmp_path}/none.sock"))
    with pytest.raises(InputError, match="a broker runs in real time"):
        qloom.run("phases", site=Site(broker=f"{tmp_path}/none.sock"), world="virtual")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", HOLDS)
def test_a_run_that_is_killed_and_resumed_pays_for_no_task_twice(service, client, strategy):
    words = ["run", programs.source(programs.loop), "--strategy", strategy, "--broker", service.address]
    before = len(all_tasks(service))
    driver = subprocess.Popen([sys.executable, "-m", "qloom", *words], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(event["event"] == "quantum_queued" for event in as_lines(journal())))
    finally:
        driver.kill()
        driver.wait()
    outcome = qloom.resume("last")
    assert outcome.result == expected(programs.loop)
    assert len(all_tasks(service)) - before == 3


def journal() -> list[dict]:
    """Of the last run, if it has begun."""
    with contextlib.suppress(JournalError):
        return read_events(home.find_run("last"))
    return []


def wait_for(condition) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def all_tasks(service) -> list[str]:
    with sqlite3.connect(f"file:{service.store}?mode=ro", uri=True) as store:
        return [task for (task,) in store.execute("SELECT id FROM tasks")]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", HOLDS)
def test_a_broker_that_is_killed_in_the_middle_is_waited_for(tmp_path, strategy):
    service = Service(tmp_path, module="tests.broker.plain", devices=TWO)
    service.start()
    kills = []

    def kill(event):
        """In the first iteration while a task executes, in the second while it is about to."""
        moment = ("quantum_started", "quantum_queued")[len(kills)] if len(kills) < 2 else None
        if event.event == moment:
            service.kill()
            kills.append(moment)
            threading.Timer(0.3, service.start).start()

    outcome = run(service, programs.loop, strategy, listener=kill)
    assert outcome.errors == []
    assert outcome.result == expected(programs.loop)
    assert kills == ["quantum_started", "quantum_queued"]
    ended = [event["work"] for event in as_lines(outcome.events) if event["event"] == "quantum_ended"]
    assert len(ended) == len(set(ended)) == 3
    with SyncBrokerClient(service.address, retry_s=20.0) as client:
        assert client.run(qubo({("x", "x"): -1.0}, seconds=0.0))["energy"] == -1.0
        assert nothing_is_left(client)
    assert service.stop() == 0
    assert integrity(service.store) == []
    store = Database(service.store)
    [count] = store.row("SELECT count(*) FROM tasks")
    store.close()
    assert count == 3 + 1, "no task was accepted twice"
