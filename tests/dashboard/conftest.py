"""A dashboard as a process, and a browser that has opened its link."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qloom.journal import home
from qloom.journal.file import FILE_NAME
from tests.browser import opened_at, require_browser

WAITS = """
import time
from pathlib import Path
import qloom

@qloom.task(expected_s=1)
def until(path, number):
    print(f"<b>task {number}</b>")
    while not Path(path).exists():
        time.sleep(0.02)
    return number

async def program(job, path: str):
    first = await job.classical(*(until(__file__, number) for number in range(3)))
    second = await job.classical(*(until(path, number) for number in range(3, 5)))
    return sum(first) + sum(second)
"""


def wait_until(holds, within_s=60.0):
    until_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until_s, "it did not happen in time"
        time.sleep(0.05)


class Dashboard:
    """`qloom dashboard` as a user starts it."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "qloom", "dashboard", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.link = self.lines(1)[0]

    @property
    def address(self) -> str:
        return self.link.partition("/#")[0]

    @property
    def key(self) -> str:
        return self.link.partition("#key=")[2]

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def new_link(self) -> str:
        words = [sys.executable, "-m", "qloom", "dashboard"]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()[0]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    running = Dashboard()
    yield running
    assert running.stop() == 0


@pytest.fixture
def page(dashboard):
    """The dashboard in a browser that has logged in; it may complain of nothing and ask nobody else."""
    require_browser()
    with opened_at(dashboard.link) as opened:
        yield opened
        assert not opened.errors
        assert all(request.startswith(dashboard.address) for request in opened.requests), opened.requests


class WaitingRun:
    """A run that waits for a file, in a process group of its own."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.flag = directory / "flag"
        program = directory / "waits.py"
        program.write_text(WAITS)
        before = set(home.run_names())
        command = [
            sys.executable,
            "-m",
            "qloom",
            "run",
            str(program),
            "--set",
            f"path={self.flag}",
            "--quiet",
            *words,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        wait_until(lambda: set(home.run_names()) - before)
        (self.name,) = set(home.run_names()) - before
        wait_until(lambda: self.journal().count('"task_started"') == 5)

    def journal(self) -> str:
        return (home.runs_directory() / self.name / FILE_NAME).read_text()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def go_on(self) -> None:
        self.flag.touch()


@pytest.fixture
def waiting_run(tmp_path) -> Iterator[WaitingRun]:
    run = WaitingRun(tmp_path)
    yield run
    if run.process.poll() is None:
        run.kill()
