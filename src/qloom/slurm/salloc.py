"""One request in Slurm's line, and the allocation that comes of it: a `salloc` that waits, then holds.

The controller announces the allocation: no poll. It ends by the exit of salloc's command (`HOLD`), so that accounting
has it as COMPLETED. When the driver dies, by whatever, a shell beside salloc (`WATCH`) takes back a request that
waits; an allocation that is held is cancelled by its command, so that accounting has it as CANCELLED.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Callable, Sequence

from qloom.aio import TaskScope, finish, report_failure
from qloom.errors import InputError
from qloom.slurm.client import FIRST_PAUSE_S, LONGEST_PAUSE_S, Client, Urgency
from qloom.slurm.commands import CALL_TIMEOUT_S, Answer, client_environment, controller_is_down

_GRANTED = re.compile(r"Granted job allocation (\d+)")
_IN_LINE = re.compile(r"(?:Pending|Granted) job allocation (\d+)")
_TERM_AGAIN_S = 1.0  # salloc forgets a SIGTERM that comes before the controller has answered its request
# Becomes salloc, and leaves a process that sends SIGTERM to it when the driver dies while the request waits: at the
# end of input. Not the kernel (PR_SET_PDEATHSIG), which would do so later too: a salloc that holds an allocation and
# gets SIGTERM reports the job as ended by that signal, FAILED in accounting (24.11 and later; CANCELLED in 22.05).
WATCH = """exec 3<&0
QLOOM_WATCH=$(
    {
        read -r _ <&3 && exit
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            kill -TERM $$ || exit
            sleep 1
        done
    } >/dev/null 2>&1 &
    echo $!
)
export QLOOM_WATCH
exec "$@" 3<&-
"""


class Salloc:
    """A request that can be taken back, then an allocation; what is granted before it is `eligible` is given back."""

    def __init__(self, client: Client, words: Sequence[str], name: str, eligible: Callable[[], bool]) -> None:
        self.name = name
        self._eligible = eligible
        self._client = client
        self._words = list(words)
        self._process: asyncio.subprocess.Process | None = None
        self._holds = False  # an allocation, which ends with the process
        self._turn: asyncio.Future[None] | None = None
        self._withdrawn = asyncio.Event()
        self._scope = TaskScope(report_failure)
        self._complaints: asyncio.Task[bytes] | None = None  # read for as long as salloc runs

    def withdraw(self) -> None:
        """Take the request back; too late if it was granted."""
        self._withdrawn.set()
        if self._turn is not None:
            self._turn.cancel()

    async def granted(self) -> str | None:
        """Wait for the allocation; its job id, or None if the request was taken back before.

        A job that stood in line and was ended by somebody else has an id, too: Slurm knows how it ended.
        """
        pause_s = FIRST_PAUSE_S
        while not self._withdrawn.is_set():
            if not await self._its_turn():
                return None
            answer = await self._once()
            id = self._granted_id(answer)
            if id is not None:
                self._client.note_answer()
                if self._eligible() and not (self._holds and self._withdrawn.is_set()):  # that ends what it holds
                    return id
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
            await self.close()
            pause_s = await self._pause(pause_s)
            while id is not None and not self._eligible() and not self._withdrawn.is_set():
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

    def _granted_id(self, answer: Answer) -> str | None:
        """The job that was granted; a site may have a salloc that does not stay (`--no-shell`)."""
        if self._holds:
            return answer.stdout
        found = _GRANTED.search(answer.stderr) if answer.code == 0 else None
        return found[1] if found is not None else None

    async def _once(self) -> Answer:
        """Ask, until the allocation is held or salloc has ended."""
        self._client.calls += 1
        process = self._process = await asyncio.create_subprocess_exec(
            *("sh", "-c", WATCH, "sh", *self._words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=client_environment(),
            start_new_session=True,  # Ctrl-C is the driver's to handle
        )
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018  pipes, as asked for
        complaints = self._complaints = self._scope.start(process.stderr.read())
        taking_back = self._scope.spawn(self._take_back(process))
        said = (await process.stdout.readline()).decode(errors="replace").strip()
        if said.isdigit():
            self._holds = True
            await finish(taking_back, cancel=True)
            return Answer(0, said, "")
        stderr = await complaints
        code = await process.wait()
        await finish(taking_back, cancel=True)
        await self._send(process, b"ended\n")  # to the process that watches
        return Answer(code, "", stderr.decode(errors="replace"))

    async def _take_back(self, process: asyncio.subprocess.Process) -> None:
        """End a salloc that waits, once the request is withdrawn."""
        await self._withdrawn.wait()
        while process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(_TERM_AGAIN_S)

    # What it holds

    async def complete(self) -> None:
        """End the allocation by the exit of what holds it; if the controller is down, it is still held after."""
        if self._holds:
            await self._client.turn(Urgency.RELEASE)
            self._client.calls += 1
            await self._end(b"end\n")

    async def close(self) -> None:
        """End a salloc whose allocation has ended otherwise."""
        if self._holds:
            await self._end(b"gone\n")

    async def _end(self, word: bytes) -> None:
        process, self._holds = self._process, False
        assert process is not None  # noqa: S101  it holds
        await self._send(process, word)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await process.wait()
        except TimeoutError:  # the controller does not answer it
            process.kill()
            await process.wait()
        if self._complaints is not None:
            await finish(self._complaints, cancel=True)

    async def _send(self, process: asyncio.subprocess.Process, word: bytes) -> None:
        assert process.stdin is not None  # noqa: S101  a pipe, as asked for
        with contextlib.suppress(ConnectionError):  # whoever reads it has ended already
            process.stdin.write(word)
            process.stdin.close()
            await process.stdin.wait_closed()

    async def _pause(self, seconds: float) -> float:
        try:
            async with asyncio.timeout(seconds):
                await self._withdrawn.wait()
        except TimeoutError:
            pass
        return min(2 * seconds, LONGEST_PAUSE_S)
