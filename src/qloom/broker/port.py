"""What a job asks of a broker, whether it is in this process (`inprocess.py`) or behind HTTP (`remote.py`)."""

from __future__ import annotations

from typing import Any, Protocol

from qloom.device import Description
from qloom.journal.file import Recorder
from qloom.model import Payload, QpuHold, QuantumWork


class Session(Protocol):
    """A hold on a device, or on a share of it."""

    id: str
    device: str
    hold: QpuHold

    async def close(self) -> None:
        """End the hold, once its tasks are done. May be called again."""


class BrokerPort(Protocol):
    """The way to the QPUs, shared by all jobs of a run."""

    def choose(self, payload: Payload | None = None) -> str:
        """The device for a payload (`devices/choosing.py`); raises `PayloadError` if none takes it."""

    def describe(self, name: str) -> Description:
        """What a device is."""

    def takes(self, name: str, payload: Payload) -> bool:
        """Whether a payload may be given to this device."""

    def is_up(self, name: str) -> bool:
        """Whether a device can start tasks now."""

    def returns(self, name: str) -> bool:
        """Whether a device is up, or away with a planned return."""

    async def calibration(self, name: str) -> str | None:
        """The calibration that a device has now; None if it has none, is not there or does not know."""
        return None

    def expected_wait_s(self, name: str, session: str | None = None) -> float | None:
        """Seconds until a new task would start; None while the device is away, or held by another session."""

    async def open_session(self, device: str, hold: QpuHold, job: str, engine_id: str | None = None) -> Session:
        """Wait in line for a session; if the caller is cancelled, the request is withdrawn.

        `engine_id` is what the engine calls the allocation that it belongs to (a Slurm job).
        """

    async def run(self, work: QuantumWork, device: str, session: Session | None, recorder: Recorder) -> Any:
        """Queue a payload and wait for its answer; if the caller is cancelled, so is the task."""

    async def close(self) -> None:
        """Let go of everything. Jobs that ended well have left nothing."""
