"""What every device must do, as a class whose methods pytest collects: subclass it and make the device.

The broker relies on these rules after a crash: one task for each token, states that are final, and answers that stay.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise

from qloom.device import STATES, Device, Status
from qloom.errors import CannotTell, PayloadError, UnknownTask
from qloom.model import Payload, json_text

FINAL = ("done", "failed", "cancelled")


class DeviceContract:
    """The contract of a device. Tasks should take a fraction of a second: the suite runs about a dozen."""

    limit_s = 60.0  # of one test

    def make_device(self) -> Device:
        """A new device for each test."""
        raise NotImplementedError("say how the device is made")

    def make_payload(self) -> Payload:
        """A payload that the device takes; two in a row may differ."""
        raise NotImplementedError("say what the device is given")

    def run(self, test: Callable[[Device], Awaitable[None]]) -> None:
        """Run a test with a new device, which is closed at its end; subclasses may do so in another loop."""

        async def main() -> None:
            device = self.make_device()
            try:
                async with asyncio.timeout(self.limit_s):
                    await test(device)
            finally:
                await device.close()

        asyncio.run(main())

    def test_it_describes_itself(self) -> None:
        """The description fits what the device takes."""

        async def test(device: Device) -> None:
            about, payload = device.description, self.make_payload()
            _require(bool(about.name) and about.qubits >= 1 and about.lanes >= 1, f"not a device: {about}")
            _require(payload.kind in about.payloads, f"{payload.kind} is not among {about.payloads}")
            device.check(payload)
            seconds = device.seconds(payload)
            _require(0 <= seconds < math.inf, f"a task takes {seconds} s")
            _require(await device.state() in STATES, f"the state is {await device.state()}")
            now = await device.calibration()
            _require(now is None or (isinstance(now, str) and now != ""), f"the calibration is {now!r}")

        self.run(test)

    def test_it_answers_in_json(self) -> None:
        """A task that is done has an answer, however often it is asked for."""

        async def test(device: Device) -> None:
            id = await device.start("token", self.make_payload())
            _require((await finish(device, id)).state == "done", "it is not done")
            first, again = json_text(await device.result(id)), json_text(await device.result(id))
            _require(json.loads(first) == json.loads(again), "the answer has changed")

        self.run(test)

    def test_a_token_starts_one_task(self) -> None:
        """The same token gives the same id, and `find` gives it too, unless the device does not know."""

        async def test(device: Device) -> None:
            payload = self.make_payload()
            id = await device.start("token", payload)
            _require(await device.start("token", payload) == id, "the same token has started another task")
            other = await device.start("other", payload)
            _require(other != id, "two tokens have started one task")
            try:
                _require(await device.find("token") == id, "find gives another task")
                _require(await device.find("never used") is None, "find gives a task for a token that was never used")
            except CannotTell:
                pass
            for each in (id, other):
                await finish(device, each)

        self.run(test)

    def test_states_change_until_one_is_final(self) -> None:
        """`wait` returns when the state has changed; a final state stays."""

        async def test(device: Device) -> None:
            id = await device.start("token", self.make_payload())
            seen = [await device.wait(id)]
            while seen[-1].state not in FINAL:
                seen.append(await device.wait(id))
            states = [status.state for status in seen]
            _require(all(a != b for a, b in pairwise(states)), f"a state came twice: {states}")
            _require(await device.wait(id) == seen[-1], "a final state has changed")

        self.run(test)

    def test_what_it_does_not_have_is_unknown(self) -> None:
        """A task that was never started is `UnknownTask`."""

        async def test(device: Device) -> None:
            try:
                await device.wait("there is no such task")
            except UnknownTask:
                return
            raise AssertionError("the state of a task that it does not have")

        self.run(test)

    def test_what_it_cannot_take_is_refused(self) -> None:
        """A payload of another kind is `PayloadError`, before anything runs."""

        async def test(device: Device) -> None:
            try:
                device.check(replace(self.make_payload(), kind="no kind of payload", facts=None))
            except PayloadError:
                return
            raise AssertionError("it takes a kind of payload that nobody knows")

        self.run(test)

    def test_a_task_that_is_over_is_left_as_it_is(self) -> None:
        """To stop a finished task changes nothing."""

        async def test(device: Device) -> None:
            id = await device.start("token", self.make_payload())
            before = await finish(device, id)
            await device.stop(id)
            _require(await device.wait(id) == before, "a task that was over has changed")
            await device.result(id)

        self.run(test)

    def test_a_task_that_is_stopped_ends(self) -> None:
        """To stop a task ends it, unless it was done first or the device cannot stop."""

        async def test(device: Device) -> None:
            id = await device.start("token", self.make_payload())
            await device.stop(id)
            status = await finish(device, id)
            stopped = ("cancelled", "done") if device.description.can_stop else FINAL
            _require(status.state in stopped, f"it is {status.state}")

        self.run(test)


async def finish(device: Device, id: str) -> Status:
    """Wait until a task is over."""
    status = await device.wait(id)
    while status.state not in FINAL:
        status = await device.wait(id)
    return status


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
