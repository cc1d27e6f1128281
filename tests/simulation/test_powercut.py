"""Whatever a power cut leaves of a run, resuming it gives the same results, and what was durable is not run again."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import qloom
from qloom import resuming, runner
from qloom.errors import JournalError
from qloom.journal import results
from qloom.journal.file import FILE_NAME, Journal
from tests.simulation import powercut

PROGRAM = """
from qloom import task
from qloom.payload import delay

@task(expected_s=1.0)
def large(number):
    return f"{number:>3000}"  # too long for the journal: it goes to a file

async def program(job):
    first = await job.classical(large(1), large(2))
    answer = await job.quantum(delay(0.01, (1,)))
    job.speculate(large(3))
    second, _ = await job.classical(large(3), large(4)), await job.quantum(delay(0.01, (2,)))
    return [first, answer, second, await job.classical(large(1))]
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program with results in files and in the journal; QLOOM_HOME is `tmp_path / "home"`."""
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py")


class Late:
    """Threads that do everything at the last moment, when somebody waits for it."""

    def __init__(self, *_options):
        pass

    def submit(self, work, *args):
        return SimpleNamespace(result=lambda: work(*args))

    def shutdown(self):
        pass


@pytest.fixture
def durable_virtual_time(monkeypatch):
    """Virtual time with a journal that is synced as in real time, as late as it may be."""
    monkeypatch.setattr(results, "ThreadPoolExecutor", Late)

    def durable(directory, clock, **options):
        return Journal(directory, clock, **{**options, "durable": True})

    monkeypatch.setattr(runner, "Journal", durable)


def done_works(journal: bytes) -> list[str]:
    events = [json.loads(line) for line in journal.split(b"\n")[:-1]]
    ends = [event for event in events if event["event"] in ("task_ended", "quantum_ended")]
    return [event["work"] for event in ends if event["state"] == "done"]


def test_after_a_cut_at_every_write_a_run_ends_with_its_results(tmp_path, monkeypatch, program, durable_virtual_time):
    home = tmp_path / "home"
    with pytest.MonkeyPatch.context() as patch:
        recording = powercut.Recording(home, patch)
        whole = qloom.run(program, world="virtual")
    began = next(
        number for number, op in enumerate(recording.ops) if op == ("sync", op[1]) and op[1].name == FILE_NAME
    )
    resumed = made_again = lost = 0
    for number, (after, left) in enumerate(powercut.states(recording.ops, FILE_NAME)):
        place = tmp_path / f"cut{number}"
        powercut.put(left, home, place)
        monkeypatch.setenv("QLOOM_HOME", str(place))
        told = f"cut after {recording.ops[after][:2]}"
        try:
            outcome = resuming.resume("last")
        except JournalError:
            if after >= began:
                raise
            lost += 1
            continue
        resumed += 1
        assert outcome.results == whole.results, f"{told}: {outcome.errors}"
        synced = durable_part(recording.ops[: after + 1])
        events = [event["event"] for event in outcome.events]
        since = outcome.events[events.index("resumed") :] if "resumed" in events else []
        again = [event["work"] for event in since if event["event"] in ("task_started", "quantum_started")]
        assert not set(again) & set(done_works(synced)), f"{told}: what was durable runs again"
        if "result_lost" in events:
            made_again += 1
            assert resuming.resume("last").notes == ["this run is done: nothing to resume"]
    assert lost > 0
    assert resumed > made_again > 50


def durable_part(ops: list[powercut.Op]) -> bytes:
    """What of the journal was synced."""
    written = synced = b""
    for op in ops:
        if op[1].name == FILE_NAME:
            written += op[2] if op[0] == "append" else b""
            synced = written if op[0] == "sync" else synced
    return synced


@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_a_damaged_result_of_a_real_run_is_made_again(program, damage):
    whole = qloom.run(program, world="local")
    for path in (whole.directory / "results").iterdir():
        if damage == "torn":
            path.write_bytes(path.read_bytes()[:-100])
        else:
            path.unlink()
    again = resuming.resume("last")
    assert again.results == whole.results
    assert resuming.resume("last").notes == ["this run is done: nothing to resume"]


def test_a_run_in_virtual_time_syncs_nothing(tmp_path, program):
    with pytest.MonkeyPatch.context() as patch:
        recording = powercut.Recording(tmp_path, patch)
        qloom.run(program, world="virtual")
    assert not [op for op in recording.ops if op[0] == "sync"]
