"""`qpu-candidate`: a step with two targets goes to the QPU, or to the other one while the device is away or busy."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

from streamflow.core.deployment import BindingFilter, Target
from streamflow.core.exception import WorkflowDefinitionException
from streamflow.core.workflow import Job
from streamflow.log_handler import logger

from qloom_streamflow.broker import Broker, NoBroker
from qloom_streamflow.schema import BROKER, DEVICE, schema


class CandidateFilter(BindingFilter):
    """Leaves one target: StreamFlow would otherwise start a step wherever there is room first."""

    def __init__(
        self, name: str, broker: str | None = None, device: str | None = None, longestWait: float | None = None
    ) -> None:
        super().__init__(name)
        self._address = broker
        self._device = device
        self._longest_wait_s = longestWait

    @classmethod
    def get_schema(cls) -> str:
        """What `config` may hold."""
        wait = {
            "type": "number",
            "minimum": 0,
            "description": "Seconds; a step that would wait longer for the device goes to the other target",
        }
        return schema("candidate", {"broker": BROKER, "device": DEVICE, "longestWait": wait})

    async def get_targets(self, job: Job, targets: MutableSequence[Target]) -> MutableSequence[Target]:
        """The one target that the step goes to."""
        quantum = [target for target in targets if target.deployment.type == "qpu"]
        classical = [target for target in targets if target.deployment.type != "qpu"]
        if not quantum or not classical:
            raise WorkflowDefinitionException(
                f"Step {job.name} is a quantum candidate: it needs a target of type qpu and one of another type"
            )
        reason = await self._why_classical()
        if reason:
            logger.info(f"Step {job.name} goes to {classical[0].deployment.name}: {reason}")
        return classical if reason else quantum

    async def _why_classical(self) -> str:
        broker = Broker(self._address, retry_s=2.0)
        try:
            devices = await broker.devices()
        except NoBroker as error:
            return str(error)
        finally:
            await broker.close()
        usable = [device for device in devices if self._device in (None, device["name"])]
        waits = [wait_s for wait_s in map(_wait_s, usable) if wait_s is not None]
        if not waits:
            names = ", ".join(f"{device['name']} is {_state(device)}" for device in usable)
            return names or f"the broker has no QPU {self._device}"
        if self._longest_wait_s is not None and min(waits) > self._longest_wait_s:
            return f"the wait for a QPU is {min(waits):.1f} s"
        return ""


def _wait_s(device: dict[str, Any]) -> float | None:
    """Seconds until a new task would start; None while the device takes none."""
    wait_s: float | None = device["expected_wait_s"]
    return None if device["held"] or not device["up"] else wait_s


def _state(device: dict[str, Any]) -> str:
    return "held by a session" if device["held"] else "drained" if device["drained"] else str(device["state"])
