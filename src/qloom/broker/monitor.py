"""The states of the devices: polled, passed to the queue and the feed, and to the site by a hook.

The hook is a command that reports to the site, usually Slurm, whether a device is available. It knows nothing of
Slurm. A hook that fails is run again until it succeeds or the device has another state, since a
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

from qloom.broker.clock import BrokerTime
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.feed import EventFeed, News
from qloom.broker.queue.events import DeviceUp
from qloom.broker.store.session_store import DeviceSettings
from qloom.device import AVAILABLE, Device

LOG = logging.getLogger("qloom.broker")
TIMEOUT_S = 30.0  # of one run of the command
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LONGEST_REASON = 500  # bytes
STATE_S = 10.0  # a device that does not report its state within this time is taken for offline


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
                    async with asyncio.timeout(pause_s):
                        await superseded.wait()
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
                async with asyncio.timeout(self._timeout_s):
                    code = await process.wait()
            except TimeoutError:
                return f"no answer in {self._timeout_s:g} s"
            finally:
                if process.returncode is None:  # also if the broker stops: the next one reports a newer state
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            if code == 0:
                return None
            said.seek(max(0, said.seek(0, os.SEEK_END) - LONGEST_REASON))
            lines = said.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else f"exit code {code}"


class DeviceMonitor:
    """Knows how each device is, and whether an administrator has drained it."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        settings: DeviceSettings,
        dispatcher: Dispatcher,
        feed: EventFeed,
        time: BrokerTime,
        poll_s: float,  # seconds between two questions to a device; 0: only at the start
        hook: StateHook | None = None,
    ) -> None:
        self._devices, self._settings, self._dispatcher = devices, settings, dispatcher
        self._feed, self._time, self._poll_s = feed, time, poll_s
        self.hook = hook
        set_before = settings.load()
        self.drained = {name: name in set_before and set_before[name][0] for name in devices}
        self.states = dict.fromkeys(devices, "idle")
        self.calibrations: dict[str, str | None] = dict.fromkeys(devices)  # None: it has none, or does not say

    async def look_at_all(self) -> None:
        """Ask all devices for their state, before the queue is restored."""
        states = await asyncio.gather(*(self._ask(name) for name in self._devices))
        self.states = dict(zip(self._devices, states, strict=True))

    def start(self) -> None:
        """Pass the states to the queue, which starts what can be."""
        for name in self._devices:
            self._apply(name)
            self._publish(name)

    def keep_watching(self) -> None:
        """Poll each device from now on."""
        if self._poll_s > 0:
            for name in self._devices:
                self._dispatcher.spawn(self._watch(name))

    async def set_drained(self, name: str, drained: bool) -> None:
        """Start nothing new on a device, or start again; what runs there is finished."""
        if not drained:
            await self._look(name)  # the reply has its state, and the last poll may be a while ago
        self.drained[name] = drained
        self._settings.set_drained(name, drained)
        self._apply(name)
        self._publish(name)

    def failing_hooks(self) -> Mapping[str, str]:
        """Devices whose state the site does not have, and why."""
        return self.hook.failing if self.hook is not None else {}

    def _is_up(self, name: str) -> bool:
        return self.states[name] in AVAILABLE and not self.drained[name]

    def _apply(self, name: str) -> None:
        self._dispatcher.handle(DeviceUp(name, self._is_up(name), away=self.states[name] not in AVAILABLE))

    def _publish(self, name: str) -> None:
        state = "drained" if self.drained[name] else self.states[name]
        self._feed.publish(News({"event": "device", "device": name, "state": state, "up": self._is_up(name)}))
        if self.hook is not None:
            self._dispatcher.spawn(self.hook.report(name, state))

    async def _watch(self, name: str) -> None:
        while True:
            await self._time.sleep(self._poll_s)
            await self._look(name)

    async def _look(self, name: str) -> None:
        state = await self._ask(name)
        was, self.states[name] = self.states[name], state
        if (was in AVAILABLE) != (state in AVAILABLE):
            LOG.info("QPU %s was %s and is %s", name, was, state)
            self._apply(name)
            self._publish(name)

    async def _ask(self, name: str) -> str:
        try:
            async with asyncio.timeout(STATE_S):
                state = await self._devices[name].state()
                self.calibrations[name] = await self._devices[name].calibration()
                return state
        except Exception as error:
            LOG.warning("QPU %s does not report its state (%s): taken for offline", name, type(error).__name__)
            return "offline"
