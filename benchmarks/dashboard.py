"""The dashboard with a large run, measured in Chromium: first paint, the handling of an update, the server's share.

python -m benchmarks.dashboard [--tasks 20000] [--nodes 200] [--pictures DIRECTORY]

A run in virtual time gives a journal of so many tasks. Nine tenths of it are there when the page is opened; the rest
is appended piece by piece, as a driver would, while the page follows. With `--pictures` a small run on this machine
is photographed instead, as the documentation shows it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright  # type: ignore[import, unused-ignore]

import qloom
from qloom.journal import home
from qloom.journal.file import FILE_NAME, has_writer
from qloom.lab.campaign.manifest import as_list, circumstances

CHROMIUM = ["--no-sandbox", "--disable-gpu"]
PIECES = 20
PIECE_EVERY_S = 1.0


@qloom.task(expected_s=1)
def work(number: int) -> int:
    """A task of a second, in virtual time."""
    return number


async def program(job: qloom.Job, calls: int, each: int) -> None:
    """Calls for so many tasks, with a quantum task after each."""
    for call in range(calls):
        await job.classical(*(work(call * each + number) for number in range(each)))
        await job.quantum(qloom.delay(0.5, call))


@contextmanager
def dashboard() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The dashboard as a process, and its link."""
    command = [sys.executable, "-m", "qloom", "dashboard"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def browser(link: str) -> Iterator[Page]:
    """A page that has logged in."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        page = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light").new_page()
        page.goto(link)
        page.wait_for_selector(".runs tbody tr")
        yield page
        chromium.close()


def measure(tasks: int, nodes: int) -> dict[str, Any]:
    """The figures of a large run."""
    site = qloom.Site(nodes=nodes)
    made = qloom.run(program, world="virtual", site=site, parameters={"calls": max(1, tasks // nodes), "each": nodes})
    assert made.directory is not None
    lines = (made.directory / FILE_NAME).read_bytes().splitlines(keepends=True)
    start = json.loads(lines[0]) | {"world": "local", "epoch_us": time.time_ns() // 1000 - 10**9}
    run = home.new_run()
    known = len(lines) * 9 // 10
    with open(run / FILE_NAME, "wb", buffering=0) as journal, dashboard() as (process, link), browser(link) as page:
        journal.write(json.dumps(start).encode() + b"\n" + b"".join(lines[1:known]))
        fcntl.flock(journal, fcntl.LOCK_EX)  # as a driver does
        assert has_writer(run)
        page.goto(f"{link.partition('#')[0]}#/run/{run.name}")
        page.reload()
        page.wait_for_function("() => performance.getEntriesByName('qloom-whole').length > 0", timeout=120_000)
        first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        whole = page.evaluate("(one => one.startTime + one.duration)(performance.getEntriesByName('qloom-whole')[0])")
        used_s, began_s = cpu_s(process.pid), time.monotonic()
        rest = lines[known:]
        for piece in range(PIECES):
            journal.write(b"".join(rest[piece * len(rest) // PIECES : (piece + 1) * len(rest) // PIECES]))
            page.wait_for_timeout(1000 * PIECE_EVERY_S)
        share = (cpu_s(process.pid) - used_s) / (time.monotonic() - began_s)
        updates = page.evaluate("performance.getEntriesByName('qloom-update').map(one => one.duration)")
        paints = page.evaluate("performance.getEntriesByName('qloom-paint').map(one => one.duration)")
    return {
        "events": len(lines),
        "first paint, ms": round(first),
        "whole timeline, ms": round(whole),
        "updates": len(updates),
        "update, median ms": round(median(updates), 1),
        "update, largest ms": round(max(updates), 1),
        "drawing, median ms": round(median(paints), 1),
        "drawing, largest ms": round(max(paints), 1),
        "server, share of a core": round(share, 4),
    }


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def photograph(directory: Path) -> None:
    """A run on this machine, as the documentation shows it."""
    words = ["--jobs", "2", "--nodes", "4", "--strategy", "malleable", "--set", "iterations=6", "--quiet"]
    lengths = ["--set", "classical_s=1.2,0.9,0.7", "--set", "quantum_s=0.8", "--set", "score_s=0.4"]
    command = [sys.executable, "-m", "qloom", "run", "phases", *words, *lengths]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*command, "--strategy", "vqpu"], check=True, stdout=subprocess.DEVNULL)
    with dashboard() as (_, link), browser(link) as page:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        page.wait_for_selector(".runs tbody tr:first-child .badge.running", timeout=60_000)
        page.wait_for_timeout(4000)
        page.set_viewport_size({"width": 1280, "height": 420})
        page.screenshot(path=directory / "dashboard-runs.png")
        page.click(".runs tbody tr:first-child a")
        page.wait_for_timeout(6000)
        for name, width in (("run", 1280), ("run-dark", 1280), ("run-390", 390)):
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme="dark" if "dark" in name else "light")
            page.wait_for_timeout(700)
            page.screenshot(path=directory / f"dashboard-{name}.png", full_page=True)
        running.wait()
        page.set_viewport_size({"width": 1280, "height": 900})
        page.click("#what-if", timeout=60_000)
        page.wait_for_selector("#if-costs td", timeout=60_000)
        page.select_option("#if-strategy", "coschedule")
        page.wait_for_selector(".side p:has-text('coschedule')", timeout=60_000)
        page.wait_for_timeout(700)
        page.locator("section[aria-label='What if?']").screenshot(path=directory / "dashboard-what-if.png")


def main() -> None:
    """Print the figures, or take pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["QLOOM_HOME"] = directory
        if given.pictures is not None:
            photograph(given.pictures)
            return
        print(f"{given.tasks} tasks on {given.nodes} nodes")
        for name, value in measure(given.tasks, given.nodes).items():
            print(f"{name:<26}{value}")
        print(as_list(circumstances()))


if __name__ == "__main__":
    main()
