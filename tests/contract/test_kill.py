"""`kill -9` of a running `qloom run` at several moments, then `qloom resume last`: as if nothing had happened."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import qloom
from qloom.journal.file import FILE_NAME, read_events
from qloom.strategies import STRATEGIES
from qloom.testing import programs
from tests.journals import as_lines

QLOOM = str(Path(sys.executable).with_name("qloom"))
MOMENTS = [4, 11, 19, 32, 47]  # events in the journal when the kill comes
DEADLINE_S = 180


def start(arguments, output):
    with open(output, "w") as file:
        return subprocess.Popen([QLOOM, *arguments, "--quiet"], stdout=file, stderr=subprocess.DEVNULL)


def journal_of(home):
    found = sorted(home.glob(f"runs/*/{FILE_NAME}"))
    return found[-1] if found else None


def wait_for_events(home, running, count):
    """Until the journal has so many events, or the run is over."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        journal = journal_of(home)
        if journal is not None and journal.read_bytes().count(b"\n") >= count:
            return
        if running.poll() is not None:
            return
        time.sleep(0.005)
    raise AssertionError(f"the journal never had {count} events")


@pytest.mark.parametrize(
    "strategy", [name if name == "malleable" else pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES]
)
@pytest.mark.parametrize("program", [programs.loop, programs.overlap], ids=lambda program: program.__name__)
def test_killed_again_and_again_and_resumed(program, strategy, qloom_home, tmp_path):
    output = tmp_path / "output"
    running = start(["run", programs.source(program), "--strategy", strategy], output)
    for moment in MOMENTS:
        wait_for_events(qloom_home, running, moment)
        running.kill()
        assert running.wait() in (-signal.SIGKILL, 0)
        running = start(["resume", "last"], output)
    assert running.wait(timeout=DEADLINE_S) == 0
    expected = qloom.run(programs.source(program), world="virtual", in_memory=True).result
    assert output.read_text() == f"{expected}\n"
    ended = {}
    for event in as_lines(read_events(journal_of(qloom_home).parent)):
        if event["event"] in ("task_started", "quantum_queued"):
            assert event["work"] not in ended, "work whose end is in the journal was run again"
        elif event.get("state") == "done" and "work" in event:
            ended[event["work"]] = event
    assert len(ended) >= 4
