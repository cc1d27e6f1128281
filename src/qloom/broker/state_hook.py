"""The hook: a command that reports to the site, usually Slurm, whether a device is available.

It knows nothing of Slurm. A hook that fails is run again until it succeeds or the device has another state, since a
node that stays drained, or one that takes jobs for a device that is away, would stay so until somebody notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence

LOG = logging.getLogger("qloom.broker")
TIMEOUT_S = 30.0  # of one run of the command
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LONGEST_REASON = 500  # bytes


class StateHook:
    """Runs the command once for each change of a device's state, in order, and again while it fails."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
        first_pause_s: float = FIRST_PAUSE_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._failing: dict[str, tuple[str, str]] = {}  # the state to be reported, and why that failed
        self._turns: dict[str, asyncio.Lock] = {}
        self._superseded: dict[str, asyncio.Event] = {}  # by device; of its latest state

    @property
    def failing(self) -> Mapping[str, str]:
        """Devices whose state the site does not have, and why: the hook's last failure."""
        return {device: reason for device, (_, reason) in self._failing.items()}

    async def report(self, device: str, state: str) -> None:
        """Run the command for a new state of a device until it succeeds or a newer state takes its place."""
        if (before := self._superseded.get(device)) is not None:
            before.set()
        superseded = self._superseded[device] = asyncio.Event()
        async with self._turns.setdefault(device, asyncio.Lock()):
            pause_s = self._first_pause_s
            while (reason := await self._run(device, state)) is not None:
                self._note_failure(device, state, reason)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(superseded.wait(), pause_s)
                    return
                pause_s = min(2 * pause_s, self._longest_pause_s)
            if self._failing.pop(device, None) is not None:
                LOG.info("the hook %s works again: QPU %s is %s", self._command[0], device, state)

    def _note_failure(self, device: str, state: str, reason: str) -> None:
        if self._failing.get(device) != (state, reason):  # once, not at every try
            LOG.error("the hook %s failed for QPU %s, %s: %s", self._command[0], device, state, reason)
        self._failing[device] = state, reason

    async def _run(self, device: str, state: str) -> str | None:
        """Run the command once; returns why it failed, or None if it succeeded."""
        with tempfile.TemporaryFile() as said:  # a pipe would stay open for as long as what the hook has started
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env={**os.environ, "QLOOM_DEVICE": device, "QLOOM_DEVICE_STATE": state},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,  # a process group of its own: what it has started is ended with it
                )
            except OSError as error:
                return f"it cannot be run: {error.strerror}"
            try:
                code = await asyncio.wait_for(process.wait(), self._timeout_s)
            except TimeoutError:
                return f"no answer in {self._timeout_s:g} s"
            finally:
                if process.returncode is None:  # also if the broker stops: the next one reports a newer state
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            if code == 0:
                return None
            said.seek(max(0, said.seek(0, os.SEEK_END) - LONGEST_REASON))
            lines = said.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else f"exit code {code}"
