"""Whatever a power cut leaves of a run, resuming it gives the same results, and what was durable is not run again."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from types import SimpleNamespace

import pytest

import qloom
from qloom.errors import JournalError
from qloom.journal import file as journal_file
from qloom.journal import home, results
from qloom.journal.file import FILE_NAME, Journal, read_events
from qloom.lab.campaign.execute import carry_out
from qloom.lab.campaign.store import CELLS, CampaignRun, CampaignStore
from qloom.runs import resume as resuming
from qloom.runs import runner
from tests.journals import as_lines
from tests.simulation import powercut

PROGRAM = """
from qloom import task
from qloom.payloads.adapt import delay

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


HOME = "new/home"
# At least so many cuts after each operation of a kind: a line may be torn, and an event may be promised.
FEWEST_CUTS = {
    ("mkdir", ""): 1,
    ("create", ""): 1,
    ("append", ""): 2,
    ("rename", ""): 1,
    ("unlink", ""): 1,
    ("sync", ""): 0,  # leaves what could have been left before
    ("sync", FILE_NAME): 1,
}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program with results in files and in the journal. Neither QLOOM_HOME nor its parent is there yet."""
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "disk" / HOME))
    (tmp_path / "disk").mkdir()
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


def record(disk, program) -> tuple[powercut.Recording, qloom.Outcome]:
    """Run the program; every change below `disk` has to be recorded, or no cut would be tried for it."""
    with pytest.MonkeyPatch.context() as patch:
        recording = powercut.Recording(disk, patch)
        whole = qloom.run(program, world="virtual")
    assert not recording.unrecorded
    return recording, whole


def part(path) -> str:
    """Which part of a run a path is."""
    return "result" if path.parent.name == "results" else path.name if path.suffix else "directory"


def cut_everywhere(tmp_path, monkeypatch, program) -> Counter[str]:
    """Resume after every cut, and require the same results; how often each kind was cut, and what came of it."""
    disk = tmp_path / "disk"
    recording, whole = record(disk, program)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # what is resumed need not survive
    began = next(
        number for number, op in enumerate(recording.ops) if op == ("sync", op[1]) and op[1].name == FILE_NAME
    )
    counts: Counter[str] = Counter()
    cuts: Counter[int] = Counter()  # after each operation
    for number, (after, left) in enumerate(powercut.states(recording.ops, FILE_NAME)):
        place = tmp_path / f"cut{number}"
        powercut.put(left, disk, place)
        monkeypatch.setenv("QLOOM_HOME", str(place / HOME))
        what, path = recording.ops[after][:2]
        counts[f"{what} {part(path)}"] += 1
        cuts[after] += 1
        told = f"cut after {what} {path}"
        try:
            outcome = resuming.resume("last")
        except JournalError as error:
            outcome = error
        if isinstance(outcome, JournalError):
            assert after < began, f"{told}: {outcome}"
            counts["lost"] += 1
            continue
        counts["resumed"] += 1
        assert outcome.results == whole.results, f"{told}: {outcome.errors}"
        synced = durable_part(recording.ops[: after + 1])
        events = [event["event"] for event in as_lines(outcome.events)]
        since = as_lines(outcome.events[events.index("resumed") :]) if "resumed" in events else []
        again = [event["work"] for event in since if event["event"] in ("task_started", "quantum_started")]
        assert not set(again) & set(done_works(synced)), f"{told}: what was durable runs again"
        if "result_lost" in events:
            counts["made again"] += 1
            assert resuming.resume("last").notes == ["this run is done: nothing to resume"]
        shutil.rmtree(place)
    for number, (what, path, *_) in enumerate(recording.ops):
        assert cuts[number] >= FEWEST_CUTS.get((what, part(path)), FEWEST_CUTS[what, ""]), (what, path)
    return counts


def test_after_a_cut_at_every_write_a_run_ends_with_its_results(tmp_path, monkeypatch, program, durable_virtual_time):
    counts = cut_everywhere(tmp_path, monkeypatch, program)
    print(dict(counts))
    results = ("create result", "append result", "rename result", "sync result")
    journal = (f"create {FILE_NAME}", f"append {FILE_NAME}", f"sync {FILE_NAME}")
    owner = ("create journal.owner", "append journal.owner", "unlink journal.owner")
    assert {what for what in counts if " " in what} == {"mkdir directory", *results, *journal, *owner, "made again"}
    assert counts["lost"] > 0
    assert counts["resumed"] > counts["made again"] > 50


def not_at_all(*_arguments):
    """Syncs nothing."""


def synced_too_late(journal, event, *, durable=False, **fields):
    """An event is on the disk before the results that it names."""
    results_of, journal.results = journal.results, SimpleNamespace(sync=not_at_all)
    try:
        REAL_RECORD(journal, event, durable=durable, **fields)
    finally:
        journal.results = results_of
    if durable:
        journal.results.sync()


REAL_RECORD = Journal.record


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (Journal, "record", synced_too_late),
        (results, "sync_file", not_at_all),
        (results, "sync_directory", not_at_all),
        (journal_file, "sync_directory", not_at_all),
        (home, "make_directories", lambda path: path.mkdir(parents=True, exist_ok=True)),
    ],
    ids=["event before result", "results", "names of results", "names of the run", "QLOOM_HOME"],
)
def test_what_is_synced_too_late_or_not_at_all_is_found(
    tmp_path, monkeypatch, program, durable_virtual_time, where, name, broken
):
    """The test above would fail."""
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(AssertionError, match="cut after"):
        cut_everywhere(tmp_path, monkeypatch, program)


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
    qloom.run(program, world="virtual")  # the first makes QLOOM_HOME
    with pytest.MonkeyPatch.context() as patch:
        recording = powercut.Recording(tmp_path, patch)
        qloom.run(program, world="virtual")
    assert not [op for op in recording.ops if op[0] == "sync"]


CAMPAIGN = {"title": "one cell", "base": {"program": "phases"}, "matrix": {"strategy": ["offload"]}}


def test_a_cell_that_a_campaign_has_as_done_has_its_whole_run(tmp_path, monkeypatch, program):
    """What was asked for can be read once it was written, and a cell counts only with the journal of its run."""
    disk = tmp_path / "disk"
    asked = CampaignRun("one", CAMPAIGN)
    with pytest.MonkeyPatch.context() as patch:
        recording = powercut.Recording(disk, patch)
        carry_out(asked, lambda *_: None)
    assert not recording.unrecorded
    syncs = [
        number for number, (what, path, *_) in enumerate(recording.ops) if (what, path) == ("sync", asked.directory)
    ]
    begun, done = syncs[1], syncs[-1]  # of the manifest, of what was asked for, and of the line of the cell
    place_of = asked.directory.relative_to(disk)
    found: Counter[int] = Counter()
    for number, (after, left) in enumerate(powercut.states(recording.ops, CELLS)):
        place = tmp_path / f"cut{number}"
        powercut.put(left, disk, place)
        monkeypatch.setenv("QLOOM_HOME", str(place / HOME))
        store = CampaignStore(place / place_of)
        told = f"cut after {recording.ops[after][:2]}"
        if after >= begun:
            assert store.asked() == asked, told
        runs = list(store.done().values())
        found[len(runs)] += 1
        assert len(runs) == 1 or after < done, told
        for run in runs:
            assert read_events(home.runs_directory() / run)[-1].event == "run_ended", told
        shutil.rmtree(place)
    assert found[0] > 20
    assert found[1] > 0
