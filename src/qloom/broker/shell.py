"""The broker: one door to the devices. Everything that is answered was made durable before.

It runs in real and in virtual time, in process or behind HTTP: no threads, no sockets, no clock of its own.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Any

from qloom.broker.api.feed import News
from qloom.broker.desk import View
from qloom.broker.problems import NotFound
from qloom.broker.queue.events import SharesChanged
from qloom.broker.queue.promise import shares_for
from qloom.broker.reconcile import differences
from qloom.broker.sessions import SessionDesk
from qloom.broker.state_hook import StateHook
from qloom.broker.store.records import Caller
from qloom.broker.tasks import TaskDesk
from qloom.device import AVAILABLE
from qloom.errors import InputError, Refused

LOG = logging.getLogger("qloom.broker")
STATE_S = 10.0  # a device that does not say how it is for so long is taken for offline
TIDY_S = 60.0


class Broker(SessionDesk, TaskDesk):
    """Tasks, sessions and devices. `start` before, `close` after."""

    def __init__(
        self,
        *args: Any,
        keep_s: float = 7 * 86400.0,  # how long results can be read
        session_idle_s: float = 3600.0,  # a session that nobody uses is closed
        poll_s: float = 5.0,  # how often devices are asked for their state; 0: only at the start
        promised_wait_s: dict[str, float] | None = None,  # what the site has promised, by device
        state_hook: StateHook | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.keep_s = keep_s
        self.session_idle_s = session_idle_s
        self.poll_s = poll_s
        self.promised_wait_s = promised_wait_s or {}
        self.state_hook = state_hook
        self.states = dict.fromkeys(self.devices, "idle")

    async def start(self) -> None:
        """Take up what was left, then begin to serve."""
        told = await asyncio.gather(*(self._ask_state(name) for name in self.devices))
        self.states = dict(zip(self.devices, told, strict=True))
        self.load()
        for name in self.devices:
            self._set_up(name)
            self._tell_device(name)
        self.tidy()
        await self.store.durable()
        if self.poll_s > 0:
            for name in self.devices:
                self.spawn(self._watch(name))
            self.spawn(self._keep_tidy())
            if self.slurm is not None:
                self.spawn(self._keep_checked(self.slurm.check_s))

    # Devices

    def device_views(self) -> list[View]:
        """All devices, as everybody may see them."""
        return [self.device(name) for name in self.devices]

    def device(self, name: str) -> View:
        """What a device is and how it stands."""
        up = self._up(name)
        spec = self.specs[name]
        return {
            **asdict(self.devices[name].description),
            "state": self.states[name],
            "drained": self.drained[name],
            "up": up,
            "held": self.core.owner(name) is not None,  # all of it, by one session
            "policy": spec.policy,
            "shares": self.core.shares(name),
            "longest_s": spec.longest_s,
            "promised_wait_s": self.core.promised_wait_s(name),
            "expected_wait_s": self.core.expected_wait_s(name) if up else None,
        }

    def queue(self, who: Caller) -> View:
        """How much waits where, and where the caller's tasks are; nothing of anybody else's."""
        devices: dict[str, dict[str, Any]] = {
            name: {"queued": 0, "on_device": 0, "sessions_open": 0, "sessions_waiting": 0} for name in self.devices
        }
        mine: list[View] = []
        ahead_s = dict.fromkeys(devices, 0.0)
        for task in self.live.values():
            counts = devices[task.submitted.device]
            queued = task.state == "queued"
            position = counts["queued"] + counts["on_device"]
            if task.project in who.projects:
                wait_s = ahead_s[task.submitted.device] / self.specs[task.submitted.device].lanes if queued else 0.0
                view = self.as_seen(who, task.view())
                mine.append({**view, "position": position if queued else 0, "expected_wait_s": wait_s})
            ahead_s[task.submitted.device] += task.submitted.expected_s
            counts["queued" if queued else "on_device"] += 1
        for session in self.sessions.values():
            devices[session.device]["sessions_open" if session.state == "open" else "sessions_waiting"] += 1
        return {"devices": [{"device": name, **counts} for name, counts in devices.items()], "mine": mine}

    async def drain(self, who: Caller, device: str, drained: bool) -> View:
        """Start nothing new on a device, or start again; what runs there is finished."""
        who.require_admin()
        self._up(device)
        if not drained:
            await self._look(device)  # the answer tells its state, and the last look may be a while ago
        self.drained[device] = drained
        self.store.stage(
            "INSERT INTO devices (name, drained) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET drained = excluded.drained",
            *(device, int(drained)),
        )
        self._set_up(device)
        self._tell_device(device)
        await self.store.durable()
        return self.device(device)

    async def set_shares(self, who: Caller, device: str, shares: int) -> View:
        """Offer another number of vQPUs: more at once, fewer as sessions end."""
        who.require_admin()
        self._up(device)
        if not 1 <= shares <= 10_000:
            raise InputError(f"a device has at least 1 share and at most 10000, not {shares}")
        promised_s = self.promised_wait_s.get(device)
        if promised_s is not None and shares > (most := shares_for(self.specs[device], promised_s)):
            raise Refused(f"QPU {device} promises a wait of at most {promised_s:g} s, which allows {most} shares")
        self.store.stage(
            "INSERT INTO devices (name, shares) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET shares = excluded.shares",
            *(device, shares),
        )
        self.handle(SharesChanged(device, shares))
        await self.store.durable()
        return self.device(device)

    async def reconcile(self, who: Caller, device: str | None = None) -> list[View]:
        """Where the vendors' books and ours differ."""
        who.require_admin()
        if device is not None:
            self._up(device)
        rows: list[View] = []
        for one in [self.devices[device]] if device is not None else self.devices.values():
            rows += differences(self.store, one.description, await one.tasks())
        return rows

    def _up(self, name: str) -> bool:
        """Whether tasks are started on a device; raises if there is none of that name."""
        if name not in self.devices:
            raise NotFound(f"no QPU is called {name!r}", hint=f"there is: {', '.join(self.devices)}")
        return self.core.is_up(name)

    # Watching

    def _is_up(self, name: str) -> bool:
        return self.states[name] in AVAILABLE and not self.drained[name]

    def _set_up(self, name: str) -> None:
        self.set_up(name, self._is_up(name), away=self.states[name] not in AVAILABLE)

    async def _ask_state(self, name: str) -> str:
        try:
            async with asyncio.timeout(STATE_S):
                return await self.devices[name].state()
        except Exception as error:
            LOG.warning("QPU %s does not say how it is (%s): taken for offline", name, type(error).__name__)
            return "offline"

    async def _watch(self, name: str) -> None:
        while True:
            await self.clock.sleep(self.poll_s)
            await self._look(name)

    async def _look(self, name: str) -> None:
        state = await self._ask_state(name)
        was, self.states[name] = self.states[name], state
        if (was in AVAILABLE) != (state in AVAILABLE):
            LOG.info("QPU %s was %s and is %s", name, was, state)
            self._set_up(name)
            self._tell_device(name)

    async def _keep_tidy(self) -> None:
        while True:
            await self.clock.sleep(TIDY_S)
            self.tidy()

    async def _keep_checked(self, every_s: float) -> None:
        while True:
            await self.clock.sleep(every_s)
            await self.check_jobs()

    def _tell_device(self, name: str) -> None:
        state = "drained" if self.drained[name] else self.states[name]
        self.feed.tell(News({"event": "device", "device": name, "state": state, "up": self._is_up(name)}))
        if self.state_hook is not None:
            self.spawn(self.state_hook.tell(name, state))

    def tidy(self) -> None:
        """Close sessions that nobody uses, and forget results that were kept for long enough."""
        now_us = self.now_us()
        busy = {task.submitted.session: None for task in self.live.values()}
        for session in list(self.sessions.values()):
            if session.id not in busy and now_us - session.used_us > self.session_idle_s * 1e6:
                self.close_now(session, f"it was not used for {self.session_idle_s:g} s")
        before_us = self.presence.ago_us(now_us, self.keep_s)
        self.presence.forget(before_us)
        self.presence.note(now_us)
        if self.store.row("SELECT 1 FROM tasks WHERE ended_us < ? LIMIT 1", before_us) is not None:
            old = "(SELECT id FROM tasks WHERE ended_us < ?)"
            self.store.stage(f"DELETE FROM results WHERE task IN {old}", before_us)  # noqa: S608
            self.store.stage("DELETE FROM tasks WHERE ended_us < ?", before_us)
            self.store.stage("DELETE FROM sessions WHERE closed_us < ?", before_us)
