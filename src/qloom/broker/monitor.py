"""The states of the devices: polled, passed to the queue, the feed and the site's hook."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from qloom.broker.clock import BrokerTime
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.feed import EventFeed, News
from qloom.broker.queue.events import DeviceUp
from qloom.broker.state_hook import StateHook
from qloom.broker.store.session_store import DeviceSettings
from qloom.device import AVAILABLE, Device

LOG = logging.getLogger("qloom.broker")
STATE_S = 10.0  # a device that does not report its state within this time is taken for offline


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
                return await self._devices[name].state()
        except Exception as error:
            LOG.warning("QPU %s does not report its state (%s): taken for offline", name, type(error).__name__)
            return "offline"
