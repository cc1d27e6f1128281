"""Runs that are killed at several moments, and what devices have executed, counted where answers are computed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from qloom.journal.content import digest
from qloom.journal.events import QuantumEnded, QuantumStarted
from qloom.journal.file import FILE_NAME, read_events

QLOOM = str(Path(sys.executable).with_name("qloom"))
DEADLINE_S = 240
MOMENTS = (b'"quantum_started"', 1), (b'"quantum_ended"', 4), (b'"quantum_started"', 9)  # and how many there are
# Python imports this at its start. The process that computes a device's answers adds the seed of each to a file.
COUNTING = """
import runpy

run_module = runpy.run_module


def counting(name, **options):
    if name == "qloom.devices.solver":
        from qloom.devices import solvers

        solve = solvers.solve

        def counted(solver, request):
            with open({file!r}, "a") as lines:
                lines.write(f"{{request['seed']}}\\n")
            return solve(solver, request)

        solvers.solve = counted
    return run_module(name, **options)


runpy.run_module = counting
"""


class DeviceCounter:
    """Counts what devices execute in every process that is started while it is in PYTHONPATH."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self._file = folder / "executed"
        customised = folder / "customised"
        customised.mkdir()
        (customised / "sitecustomize.py").write_text(COUNTING.format(file=str(self._file)))
        monkeypatch.setenv("PYTHONPATH", str(customised))

    def executed(self) -> Counter[int]:
        """How often a device has begun each task, by its seed."""
        return Counter(map(int, self._file.read_text().split())) if self._file.exists() else Counter()


def seed_of(work: str) -> int:
    """The seed that a device is given for a quantum task of the first job of a run with seed 0."""
    key, _, occurrence = work.rpartition(".")
    return int(digest("seed", 0, key, int(occurrence))[:7], 16)


def finished_and_out(directory: Path) -> tuple[set[int], set[int]]:
    """Quantum tasks that the journal has as done, and those that it has as begun only."""
    begun, done = set(), set()
    for event in read_events(directory):
        if isinstance(event, QuantumStarted):
            begun.add(seed_of(event.work))
        elif isinstance(event, QuantumEnded) and event.state == "done":
            done.add(seed_of(event.work))
    return done, begun - done


def kill_and_resume(home: Path, output: Path, words: list[str]) -> tuple[str, Path, Counter[int]]:
    """What the run printed, its directory, and how often each task was out when its driver was killed."""
    out: Counter[int] = Counter()
    for event, number in MOMENTS:
        directory = _killed_at(home, output, words, event, number)
        out.update(finished_and_out(directory)[1])
        words = ["resume", directory.name]
    driver = _start(output, words)
    assert driver.wait(timeout=DEADLINE_S) == 0, output.read_text()
    return output.read_text(), directory, out


def _start(output: Path, words: list[str]) -> subprocess.Popen[bytes]:
    with open(output, "w") as file:
        return subprocess.Popen([QLOOM, *words, "--quiet"], stdout=file, stderr=subprocess.STDOUT)


def _killed_at(home: Path, output: Path, words: list[str], event: bytes, number: int) -> Path:
    driver = _start(output, words)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        journals = sorted(home.glob(f"runs/*/{FILE_NAME}"))
        if journals and journals[-1].read_bytes().count(event) >= number:
            driver.kill()
            assert driver.wait() == -signal.SIGKILL
            return journals[-1].parent
        assert driver.poll() is None, f"the run was over before it was killed: {output.read_text()}"
        time.sleep(0.01)
    driver.kill()
    raise AssertionError(f"there were never {number} of {event.decode()}")


def check_executed(counter: DeviceCounter, directory: Path, out: Counter[int]) -> None:
    """Each task was executed once; again, at most once for each kill, only if it was out then."""
    executed = counter.executed()
    done, unfinished = finished_and_out(directory)
    assert set(executed) == done
    assert not unfinished
    again = {seed: times - 1 for seed, times in executed.items() if times > 1}
    assert all(times <= out[seed] for seed, times in again.items()), (again, out)
