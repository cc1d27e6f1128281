"""The root of an elastic MPI program: not a rank itself, it holds the nodes and starts the ranks anew for each size.

That the root is no part of MPI is what makes it robust: ranks may fail, end and change in number without it.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qloom.errors import InputError, JobError
from qloom.journal.home import require_own
from qloom.mpi.elastic import ASKED, DIRECTORY, LEFT, NODES, OFFER, STATE, WISH, read_note, remove_notes, write_note
from qloom.mpi.nodes import Nodes
from qloom.worker import die_with_parent

POLL_S = 0.02
EVENTS, LOCK = "events.jsonl", "lock"


@dataclass(frozen=True)
class ElasticPlan:
    """What a root is to do."""

    program: tuple[str, ...]  # a Python file or a command, with arguments
    directory: Path  # seen by all nodes; holds notes, saved state and events
    least: int = 1
    most: int = 1
    start: int = 1
    ranks_per_node: int = 1
    patience_s: float = 60.0  # how long a request for nodes may wait in the queue
    stop_within_s: float = 25.0  # for the ranks to reach a safe point when the root is to stop

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.start <= self.most or self.ranks_per_node < 1:
            raise InputError(
                f"nodes from {self.least} to {self.most}, starting on {self.start}, "
                f"with {self.ranks_per_node} ranks on each, is not possible"
            )

    @property
    def words(self) -> tuple[str, ...]:
        """The command that every rank runs."""
        return (sys.executable, "-m", "qloom.mpi", *self.program) if self.program[0].endswith(".py") else self.program


class Root:
    """Runs one program to its end, on as many nodes as it wants and gets."""

    def __init__(self, plan: ElasticPlan, nodes: Nodes) -> None:
        self._plan = plan
        self._nodes = nodes
        self._most = plan.most  # until the resource manager says otherwise
        self._target = 0  # on how many nodes to go on
        self._said = 0  # what the ranks were last offered; 0: to stop
        self._aimed = 0  # how many were last wished for
        self._brought = 0  # the same when the ranks were started
        self._settled = 0  # the last wish that was answered
        self._open: int | None = None  # the wish that waits for nodes
        self._give_up_at = 0.0
        self._stop_at: float | None = None

    def run(self) -> bool:
        """True when the program has ended; False if it was stopped, to be continued from its saved state."""
        directory = self._plan.directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_own(directory, STATE)
        with self._locked(), self._stoppable():
            remove_notes(directory, ASKED)
            try:
                self._nodes.begin(self._plan.start)
                while self._nodes.in_use == 0 and self._stop_at is None:
                    if self._nodes.arrived() is not None:
                        self._nodes.take()
                    time.sleep(POLL_S)
                if self._stop_at is not None:
                    return False
                self._target = self._nodes.in_use
                while self._phase():
                    if self._stop_at is not None:
                        self._record("stopped")
                        return False
                    self._resize()
            except BaseException:
                self._nodes.end(failed=True)
                raise
            finally:
                self._nodes.end()
                remove_notes(directory, OFFER, WISH, LEFT)
            shutil.rmtree(directory / STATE, ignore_errors=True)
            self._record("ended")
            return True

    def _phase(self) -> bool:
        """Start the ranks and watch them until they end; True if they left to go on elsewhere."""
        plan, directory = self._plan, self._plan.directory
        remove_notes(directory, WISH, LEFT)
        self._settled, self._open, self._brought = 0, None, self._aimed
        self._offer()
        launch = self._nodes.launch(plan.ranks_per_node)
        self._record("started", nodes=self._nodes.in_use)
        place = {DIRECTORY: str(directory.resolve()), NODES: str(self._nodes.in_use)}
        process = subprocess.Popen(
            (*launch.words, *plan.words),
            env={**launch.environment, **place},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the root's to handle: the ranks save their state first
            preexec_fn=partial(die_with_parent, signal.SIGTERM),  # then a launcher ends its ranks
        )
        try:
            while process.poll() is None:
                self._look_around()
                if self._stop_at is not None and time.monotonic() > self._stop_at:
                    raise JobError(f"the ranks reached no safe point within {plan.stop_within_s:g} s")
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                _end(process)
        if process.returncode != 0:
            raise JobError(f"the ranks ended with exit code {process.returncode}", hint=self._what_is_left())
        return bool(read_note(directory, LEFT))

    def _look_around(self) -> None:
        """Answer wishes, of the program and of the resource manager, and see whether nodes have come."""
        directory = self._plan.directory
        if self._stop_at is not None:
            if self._said != 0:
                self._offer()
            return
        wish = read_note(directory, WISH)
        if wish.get("number", 0) > max(self._settled, self._open or 0):
            self._aim(wish["nodes"], wish["number"])
        if asked := read_note(directory, ASKED):
            remove_notes(directory, ASKED)
            self._record("asked", nodes=asked["nodes"])
            self._most = max(self._plan.least, min(asked["nodes"], self._plan.most))
            self._aim(self._most, wish.get("number", 0))
        if self._open is not None:
            arrived = self._arrived()
            if arrived is not None or time.monotonic() > self._give_up_at:
                self._settle(arrived)

    def _aim(self, nodes: int, wish: int) -> None:
        """Fewer nodes are had at once, more have to be asked for."""
        nodes = max(self._plan.least, min(nodes, self._most))
        self._nodes.withdraw()
        self._aimed = nodes
        self._open, self._target = wish, min(nodes, self._nodes.in_use)
        if nodes <= self._nodes.in_use:
            self._settle(None)
            return
        self._nodes.ask(self._nodes.in_use + 1, nodes)
        self._give_up_at = time.monotonic() + self._plan.patience_s
        self._record("requested", nodes=nodes)

    def _arrived(self) -> int | None:
        """Nodes that came; a request that Slurm refuses is as good as one that nobody answers."""
        try:
            return self._nodes.arrived()
        except JobError as error:
            self._record("refused", why=error.message)
            self._give_up_at = 0.0
            return None

    def _settle(self, arrived: int | None) -> None:
        if arrived is not None:
            self._target = arrived
            self._record("granted", nodes=arrived)
        elif self._target == self._nodes.in_use:
            self._nodes.withdraw()
        self._settled, self._open = max(self._settled, self._open or 0), None
        self._offer()

    def _resize(self) -> None:
        """Between two phases: go over to the nodes that the ranks left for."""
        before = self._nodes.in_use
        try:
            if self._target > before:
                self._nodes.take()
            else:
                self._nodes.shrink(self._target)
        except JobError as error:  # the engine does not do it: go on with what is held
            self._record("refused", why=error.message)
        self._target = self._nodes.in_use
        self._record("resized", before=before, nodes=self._target)

    def _offer(self) -> None:
        plan = self._plan
        limits = {"least": plan.least, "most": self._most}
        self._said = 0 if self._stop_at is not None else self._target
        answer = {"nodes": self._said, "wish": self._settled, "brought": self._brought}
        write_note(plan.directory, OFFER, **answer, **limits)

    def _stop(self, *_signal: Any) -> None:
        """Stop on a signal: the ranks save their state at the next safe point."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._plan.stop_within_s

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._plan.directory / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"another root uses {self._plan.directory}", hint="give this one its own") from None
            yield

    def _what_is_left(self) -> str | None:
        saved = (self._plan.directory / STATE / "current").exists()
        return f"the state saved in {self._plan.directory} is whole: run it again to go on" if saved else None

    def _record(self, event: str, **what: Any) -> None:
        line = json.dumps({"time": round(time.time(), 3), "event": event, **what})
        with (self._plan.directory / EVENTS).open("a") as file:
            file.write(f"{line}\n")


def ask_to_resize(directory: Path, nodes: int) -> None:
    """What a resource manager calls: from its next safe point the program has `nodes`, and no more than that."""
    if not (directory / OFFER).exists():
        raise InputError(f"no elastic program runs in {directory}")
    write_note(directory, ASKED, nodes=nodes)


def _end(process: subprocess.Popen[Any], patience: Sequence[float] = (5.0, 5.0)) -> None:
    for end, wait_s in zip((process.terminate, process.kill), patience, strict=True):
        end()
        try:
            process.wait(wait_s)
            return
        except subprocess.TimeoutExpired:
            continue
