"""A soak of the broker: python -m benchmarks.soak [--minutes 60] [--seed N] [--no-slurm]

Honest clients with known answers and hostile ones use a real broker process at once, while it is killed and started
again, its device drained and resumed, another in and out of calibration. With Slurm, a second broker opens sessions
only for jobs of a private Slurm, whose controller is killed now and then. All traffic stays on this machine.

It ends with exit code 1 if an accepted task was lost, answered wrong or twice, waited longer than promised in time
that its device was available, if an attack got anything, or if memory and descriptors of the last broker did not
return to where they were.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from random import Random

from benchmarks.soak.cluster import Cluster
from benchmarks.soak.disturbances import Disturbances
from benchmarks.soak.findings import Findings
from benchmarks.soak.honest import Honest
from benchmarks.soak.hostile import Hostile
from benchmarks.soak.patience import last_resort, run_beside, within
from benchmarks.soak.place import Place

from qloom.broker.store.schema import integrity
from qloom.testbed import Testbed, TestbedSettings

KILLED, WARMED = 0.55, 0.7  # parts of the time: until the last kill, until memory is read first
END_S = 300.0  # to end what is under way, at most
LONGEST_END_S = 1200.0  # all ends together
MEMORY, MEMORY_MB = 1.15, 8.0  # growth that is no leak: caches, and Python's own arenas
PROGRESS_S = 30.0


class BrokerDied(Exception):
    """Nobody had killed it."""


class Soak:
    """One broker with its clients, friends and enemies."""

    def __init__(self, name: str, place: Place, seed: str, pace_s: float, cluster: Cluster | None) -> None:
        self.name, self.place, self.findings = name, place, Findings()
        self.cluster = cluster
        self.honest = Honest(place, self.findings, Random(f"{seed} honest"), cluster)
        self.hostile = Hostile(place, self.findings, Random(f"{seed} hostile"))
        self.disturbances = Disturbances(place, self.findings, Random(f"{seed} disturb"), pace_s, cluster)
        self.before: tuple[float, int] = (0.0, 0)
        self.after: tuple[float, int] = (0.0, 0)

    async def run(self, seconds: float) -> None:
        """All of it, in `seconds` and what it takes to end."""
        try:
            await self._run(seconds)
        except* Exception as group:
            for error in _single(group):
                last = traceback.extract_tb(error.__traceback__)[-1]
                self.findings.violate(
                    f"{self.name} could not go on: {type(error).__name__}: {error} ({last.name}, line {last.lineno})"
                )
        finally:
            self.place.kill_if_alive()

    async def _run(self, seconds: float) -> None:
        await self.place.start()
        names = [f"{self.name}-task{number}" for number in range(3)]
        works = {name: self.honest.tasks(name) for name in names}
        names = [f"{self.name}-session{number}" for number in range(3)]
        works |= {name: self.honest.sessions(name) for name in names}
        names = [f"{self.name}-hostile{number}" for number in range(2)]
        works |= {name: self.hostile.attack(name) for name in names}
        works |= {f"{self.name}-disturbances": self.disturbances.go_on(), f"{self.name}-progress": self._progress()}
        await run_beside(self._script(seconds), works)
        if not self.place.is_alive():
            self.findings.violate("the broker died")
        elif await self.place.end(signal.SIGTERM) != 0:
            self.findings.violate("the broker did not end as it should")
        self._verify_store()
        self._verify_figures()

    async def _script(self, seconds: float) -> None:
        """What happens when."""
        began_s = time.monotonic()
        await asyncio.sleep(KILLED * seconds)
        self.disturbances.gentle = True
        async with within(END_S, self.name, "the last kill"):
            await self.disturbances.calm.wait()
        await asyncio.sleep(WARMED * seconds - (time.monotonic() - began_s))
        self.before = await self._quiet_figures()
        await asyncio.sleep(seconds - (time.monotonic() - began_s))
        self.disturbances.stop = True
        async with within(END_S, self.name, "the last disturbance"):
            await self.disturbances.stopped.wait()
        self.after = await self._quiet_figures(resume=False)

    async def _quiet_figures(self, resume: bool = True) -> tuple[float, int]:
        """Memory and descriptors while nobody asks for anything."""
        await self.honest.crew.pause()
        await self.hostile.crew.pause()
        least = self.place.descriptors()
        for _ in range(20):  # connections that were cut take a moment to be noticed
            await asyncio.sleep(0.25)
            least = min(least, self.place.descriptors())
        figures = self.place.memory_mb(), least
        if resume:
            self.honest.crew.resume()
            self.hostile.crew.resume()
        return figures

    async def _progress(self) -> None:
        told_s = time.monotonic()
        while True:
            await asyncio.sleep(0.5)
            if not self.place.is_alive() and not self.place.outages.is_open("restart"):
                raise BrokerDied(f"the broker of {self.name} died")
            if time.monotonic() - told_s < PROGRESS_S:
                continue
            told_s = time.monotonic()
            counts, attacks = self.findings.counts, sum(self.findings.attacks.values())
            print(
                f"{self.name}: {len(self.findings.accepted)} tasks accepted, {attacks} attacks, "
                f"{counts['kills']} kills, {counts['violations']} violations",
                flush=True,
            )

    # Verdict

    def _verify_store(self) -> None:
        for problem in integrity(self.place.store):
            self.findings.violate(f"the store is damaged: {problem}")
        with sqlite3.connect(f"file:{self.place.store}?mode=ro", uri=True) as database:
            rows = database.execute(
                "SELECT t.key, t.id, t.state, (SELECT count(*) FROM handovers h WHERE h.task = t.id "
                "AND h.outcome = 'done') FROM tasks t WHERE t.project = 'honest'"
            ).fetchall()
        known = {key: (task, state, done) for key, task, state, done in rows}
        if len(known) != len(rows):
            self.findings.violate("a key stands for two tasks")
        for key, (task, _) in self.findings.accepted.items():
            if known.get(key) != (task, "done", 1):
                self.findings.violate(f"task {key} was accepted as {task}, and the store has {known.get(key)}")
            if self.findings.answered[key] != 1:
                self.findings.violate(f"task {key} was answered {self.findings.answered[key]} times")

    def _verify_figures(self) -> None:
        (before_mb, before), (after_mb, after) = self.before, self.after
        if after > before + 3:
            self.findings.violate(f"{before} descriptors were open before, and {after} after")
        if after_mb > MEMORY * before_mb + MEMORY_MB:
            self.findings.violate(f"the broker had {before_mb:.0f} MB before, and {after_mb:.0f} MB after")

    def rows(self) -> list[tuple[str, str]]:
        """The figures for the table."""
        findings = self.findings
        waits = sorted(findings.waits_s) or [(0.0, 0.0)]
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(findings.statuses.items()))
        return [
            ("tasks accepted and answered right, once", f"{sum(findings.answered.values())}"),
            ("of them in sessions", f"{findings.counts['tasks in sessions']} in {findings.counts['sessions']}"),
            ("longest wait in a session", f"{waits[-1][0]:.2f} s (median {waits[len(waits) // 2][0]:.2f} s)"),
            ("promised wait", f"{waits[-1][1]:g} s"),
            *((name, str(findings.counts[name])) for name in ("kills", "restarts", "drains", "SIGHUPs")),
            *((name, str(findings.counts[name])) for name in ("kills of slurmctld", "jobs lost by Slurm")),
            ("attacks", ", ".join(f"{name} {count}" for name, count in sorted(findings.attacks.items()))),
            ("answers to attacks", statuses),
            ("memory of the last broker", f"{self.before[0]:.0f} MB, then {self.after[0]:.0f} MB"),
            ("descriptors of the last broker", f"{self.before[1]}, then {self.after[1]}"),
            ("violations", str(findings.counts["violations"])),
        ]


async def soak(directory: Path, seconds: float, seed: str, testbed: Testbed | None) -> int:
    """Run one soak, or two side by side, each of which goes on without the other; returns how many violations."""
    pace_s = max(1.0, min(20.0, seconds / 20))
    parts = [Soak("plain", Place(directory / "plain"), f"{seed} plain", pace_s, None)]
    if testbed is not None:
        slurm = {**testbed.environment, "PATH": TestbedSettings().installation.search_path}
        place = Place(directory / "slurm", slurm=slurm)
        parts.append(Soak("slurm", place, f"{seed} slurm", pace_s, Cluster(testbed)))
    await asyncio.gather(*(part.run(seconds) for part in parts))
    for part in parts:
        print(f"\n{part.name}")
        for name, value in part.rows():
            print(f"  {name:42} {value}")
        for violation in part.findings.violations:
            print(f"  VIOLATION: {violation}")
        if part.findings.violations:
            print(f"  the end of the broker's log:\n{part.place.last_lines(30)}")
    return sum(part.findings.counts["violations"] for part in parts)


def _single(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [one for inner in error.exceptions for one in _single(inner)]
    return [error]


def main() -> int:
    """Read the options, run, tell."""
    parser = argparse.ArgumentParser(description="Honest and hostile clients against a broker that is killed.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", default=None, help="draws the same attacks and disturbances again")
    parser.add_argument("--no-slurm", action="store_true", help="without the second broker, whose sessions need jobs")
    options = parser.parse_args()
    logging.getLogger("qloom.broker").setLevel(logging.ERROR)  # that a client tries again is what is wanted here
    seed = options.seed or secrets.token_hex(4)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print(
        f"soak of {options.minutes:g} minutes, seed {seed}, commit {commit.stdout.strip() or 'unknown'}", flush=True
    )
    if not options.no_slurm and (absent := TestbedSettings().installation.missing()):
        print(f"without Slurm: {', '.join(absent)} are not here", flush=True)
        options.no_slurm = True
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left behind
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qloom-soak-")))
        testbed = None
        if not options.no_slurm:
            settings = TestbedSettings(nodes=1, vqpus=4, broker=False)
            testbed = stack.enter_context(Testbed.up(f"soak-{seed}", settings, attached=True))
        seconds = options.minutes * 60
        with asyncio.Runner() as runner, last_resort(seconds + LONGEST_END_S, runner.get_loop()):
            violations = runner.run(soak(directory, seconds, seed, testbed))
    print(f"\n{'kept' if not violations else f'{violations} VIOLATIONS'} (seed {seed})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
