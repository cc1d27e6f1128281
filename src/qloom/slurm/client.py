"""The way of a run to the controller: its calls, no more often than the site allows, repeated until it answers.

Calls go through one token bucket, as Slurm's own limit is (`rl_enable`: 30 calls, then 2 a second). When it is empty
they take turns: what gives something back goes first, then looks and the steps of what is held, and what asks for
more last.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path

from qloom.errors import JobError
from qloom.journal.event import Event, Record
from qloom.journal.events import SlurmAnswers, SlurmSilent, SlurmThrottled
from qloom.site import Slurm
from qloom.slurm import completion
from qloom.slurm.commands import GONE, Answer, call_program, controller_is_down, read_config
from qloom.slurm.squeue import FORMAT, QueuedJob, read_jobs

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 15.0
EARLY = 1e-3  # of a call: a timer may ring a moment early
BURST_S = 10.0  # so many seconds' worth of calls may come at once
AWAY = ("drain", "down", "fail", "maint")  # as the states of such nodes begin
_COMPLETE = (sys.executable, "-I", completion.__file__)
_RELEASES = ("scancel", "scontrol", sys.executable)


class Urgency(IntEnum):
    """Whose turn is first."""

    RELEASE = 0
    USE = 1
    ASK = 2


class Pace:
    """Gives turns, at most `per_s` in a second once a burst is used up; `throttled` is called the first time."""

    def __init__(self, per_s: float, throttled: Callable[[], None]) -> None:
        self._per_s = per_s
        self._throttled: Callable[[], None] | None = throttled
        self._most = max(1.0, per_s * BURST_S)
        self._left = self._most
        self._at_s: float | None = None
        self._waiting: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def turn(self, urgency: Urgency) -> asyncio.Future[None]:
        """A future that is done when it is this call's turn; one that is cancelled before costs nothing."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._number += 1
        heapq.heappush(self._waiting, (urgency, self._number, turn))
        self._give()
        if not turn.done() and self._throttled is not None:
            self._throttled()
            self._throttled = None
        return turn

    def _give(self) -> None:
        """Give all turns that there are, and come back for the next."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        passed_s = now_s - (now_s if self._at_s is None else self._at_s)
        self._left, self._at_s = min(self._most, self._left + passed_s * self._per_s), now_s
        while self._waiting and self._left >= 1 - EARLY:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later((1 - self._left) / self._per_s, self._give) if self._waiting else None


class Client:
    """The way to the controller, for all jobs of a run."""

    def __init__(
        self,
        record: Record | None = None,
        within: Path | None = None,
        most_calls_per_s: float = Slurm.most_calls_per_s,
    ) -> None:
        self._record = record
        throttled = partial(self._note, SlurmThrottled(most_calls_per_s=most_calls_per_s))
        self._pace = Pace(most_calls_per_s, throttled)
        self._down_since: float | None = None
        self._library: str | None = None  # Slurm's own; "" if it is not found
        self.calls = 0
        self.was_silent = False
        # scontrol leaves scripts behind, and a driver that is killed this directory: better within that of its run
        self._temporary = tempfile.TemporaryDirectory(prefix="qloom-slurm-", dir=within)
        self.directory = Path(self._temporary.name)

    def turn(self, urgency: Urgency) -> asyncio.Future[None]:
        """What a call of a program of Slurm's awaits first; a turn that is cancelled before it came costs nothing."""
        return self._pace.turn(urgency)

    async def call(self, *words: str, unless: Callable[[], Awaitable[str | None]] | None = None) -> Answer:
        """Call a program until the controller has answered, however long that takes.

        A call that timed out may have come through: `unless` says before each repetition what came of it, if it did.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            answer = await self._once(words)
            if answer.code == 0 or not controller_is_down(answer.stderr):
                self.note_answer()
                return answer
            self.note_silence(answer.complaint)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if unless is not None and (found := await unless()) is not None:
                return Answer(0, found, "")

    async def _once(self, words: Sequence[str]) -> Answer:
        await self.turn(Urgency.RELEASE if words[0] in _RELEASES else Urgency.USE)
        self.calls += 1
        return await call_program(*words, cwd=self.directory)

    def note_silence(self, complaint: str) -> None:
        """The controller did not answer; the journal keeps when that began."""
        self.was_silent = True
        if self._down_since is None:
            self._down_since = asyncio.get_running_loop().time()
            self._note(SlurmSilent(complaint=complaint))

    def note_answer(self) -> None:
        """The controller answers; if it did not before, the journal keeps for how long."""
        if self._down_since is not None:
            seconds = asyncio.get_running_loop().time() - self._down_since
            self._down_since = None
            self._note(SlurmAnswers(seconds=round(seconds, 3)))

    def _note(self, event: Event) -> None:
        if self._record is not None:
            self._record(event)

    async def jobs(self, *ids: str) -> list[QueuedJob]:
        """These jobs (or all of this user's), ended ones included as long as the controller remembers them."""
        chosen = ["-j", ",".join(ids)] if ids else ["--me"]
        answer = await self.call("squeue", "-h", "-t", "all", "-o", FORMAT, *chosen)
        if answer.code != 0 and not answer.says_gone:
            raise JobError(f"squeue says: {answer.complaint}")
        return read_jobs(answer.stdout)

    async def is_away(self, partition: str) -> bool:
        """Whether all nodes of a partition are down or drained."""
        answer = await self.call("sinfo", "-h", "-N", "-p", partition, "-o", "%T")
        states = answer.stdout.split()
        return bool(states) and all(state.startswith(AWAY) for state in states)

    async def cancel(self, *ids: str) -> None:
        """End jobs, or components of het jobs; those that have ended already are no mistake."""
        answer = await self.call("scancel", *ids)
        said = [line for line in answer.stderr.lower().splitlines() if not any(text in line for text in GONE)]
        if answer.code != 0 and said:
            raise JobError(f"scancel says: {answer.complaint}", hint=f"scancel {' '.join(ids)}")

    async def complete(self, *ids: str) -> None:
        """Try to let jobs, or components of het jobs, end by themselves with exit code 0; see `completion`."""
        if self._library is None:
            config = read_config((await self.call("scontrol", "show", "config")).stdout)
            self._library = f"{config['PluginDir']}/libslurmfull.so" if "PluginDir" in config else ""
        if not self._library:
            return
        wholes = dict.fromkeys(id.partition("+")[0] for id in ids)
        answer = await self.call("squeue", "-h", "-o", "%i %A", "-j", ",".join(wholes))
        known = [line.split() for line in answer.stdout.splitlines()]
        numbers = [number for id, number in known if id in ids or id.partition("+")[0] in ids]
        if numbers:
            await self.call(*_COMPLETE, self._library, *numbers)

    async def cancel_named(self, name: str) -> None:
        """End what a request may have left in the queue; names are unique."""
        await self.call("scancel", "--me", f"--name={name}")

    def close(self) -> None:
        """Remove what the programs have left in their directory."""
        self._temporary.cleanup()
