"""One request in Slurm's line: a `salloc` that waits until the allocation is there. The controller tells it: no poll.

It is told to end when its driver ends, whatever ends that: then it takes its request back.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from functools import partial

from qloom.errors import InputError
from qloom.worlds.slurm.client import FIRST_PAUSE_S, LONGEST_PAUSE_S, Answer, Client, controller_is_down, environment
from qloom.worlds.slurm.pace import Urgency
from qloom.worlds.worker import die_with_parent

_GRANTED = re.compile(r"Granted job allocation (\d+)")
_IN_LINE = re.compile(r"(?:Pending|Granted) job allocation (\d+)")


class Salloc:
    """A request that can be taken back; what is granted before it is `eligible` is given back."""

    def __init__(self, client: Client, words: Sequence[str], name: str, eligible: Callable[[], bool]) -> None:
        self.name = name
        self._eligible = eligible
        self._client = client
        self._words = list(words)
        self._process: asyncio.subprocess.Process | None = None
        self._turn: asyncio.Future[None] | None = None
        self._withdrawn = asyncio.Event()

    def withdraw(self) -> None:
        """Take the request back; too late if it was granted."""
        self._withdrawn.set()
        if self._turn is not None:
            self._turn.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    async def granted(self) -> str | None:
        """Wait for the allocation; its job id, or None if the request was taken back before.

        A job that stood in line and was ended by somebody else has an id, too: Slurm knows how it ended.
        """
        pause_s = FIRST_PAUSE_S
        while not self._withdrawn.is_set():
            if not await self._its_turn():
                return None
            answer = await self._once()
            found = _GRANTED.search(answer.stderr) if answer.code == 0 else None
            if found is not None:
                self._client.note_answer()
                if self._eligible():
                    return found[1]
            elif not self._withdrawn.is_set():
                if answer.code != 0 and not controller_is_down(answer.stderr):
                    if (ended := _IN_LINE.search(answer.stderr)) is not None:
                        await self._client.cancel_named(self.name)  # in case that only the salloc was killed
                        return ended[1]
                    raise InputError(
                        f"Slurm refuses the allocation: {answer.complaint}", hint="see [slurm] of the site"
                    )
                self._client.note_silence(answer.complaint)
            await self._client.cancel_named(self.name)  # the controller may have it, though it did not say so
            pause_s = await self._pause(pause_s)
            while found is not None and not self._eligible() and not self._withdrawn.is_set():
                await self._pause(FIRST_PAUSE_S)  # Slurm has ended the jobs before, and others take their place
        return None

    async def _its_turn(self) -> bool:
        """Wait until Slurm may be asked; False if the request was taken back before."""
        self._turn = self._client.turn(Urgency.ASK)
        try:
            await asyncio.wait([self._turn])
        finally:
            self._turn.cancel()
        return not self._turn.cancelled()

    async def _once(self) -> Answer:
        self._client.calls += 1
        self._process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment(),
            start_new_session=True,  # Ctrl-C is the driver's to handle
            preexec_fn=partial(die_with_parent, signal.SIGTERM),
        )
        if self._withdrawn.is_set():
            self.withdraw()
        _, stderr = await self._process.communicate()
        return Answer(self._process.returncode or 0, "", stderr.decode(errors="replace"))

    async def _pause(self, seconds: float) -> float:
        try:
            await asyncio.wait_for(self._withdrawn.wait(), seconds)
        except TimeoutError:
            pass
        return min(2 * seconds, LONGEST_PAUSE_S)
