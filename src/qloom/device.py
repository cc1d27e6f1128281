"""The port of a QPU, in every world and behind the broker: a description, and calls that survive a crash.

Whoever drives a device hands over a token with each task and keeps the id that the device gives in return. After a
crash it calls `find(token)`: only a task that the device does not have is started again. What devices there are is in
`qloom.devices`; nothing here knows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from qloom.model import Payload, plain_value

STATES = ("idle", "busy", "calibration", "maintenance", "error", "offline")
AVAILABLE = ("idle", "busy")
FINAL = ("done", "failed", "cancelled")  # of a task
Outage = tuple[float, float | None]  # from, until: seconds by the device's clock; None: no return is planned


@dataclass(frozen=True)
class NativeGate:
    """A gate that a machine carries out as it is; a circuit calls it by this name."""

    name: str
    qubits: int = 1
    duration_ns: float | None = None  # None: not known
    error: float | None = None  # typical: 1 - average gate fidelity; None: not known


@dataclass(frozen=True)
class DeviceTarget:
    """What a machine is made of: what a compiler needs to know, and what circuits that are not compiled keep to."""

    qubits: int  # or atoms
    couplings: tuple[tuple[int, int], ...] = ()  # pairs that a gate of two qubits works on, in both directions
    gates: tuple[NativeGate, ...] = ()  # empty: any
    channels: tuple[str, ...] = ()  # of a pulse sequence; empty: any
    graph: str = ""  # couplings by name, of a machine that has thousands: "chimera 16 16 4"
    min_distance_um: float | None = None  # between two atoms
    max_radius_um: float | None = None  # of a register of atoms
    t1_us: float | None = None  # typical coherence times; None: not known
    t2_us: float | None = None
    readout_error: float | None = None  # typical probability to read the other value; None: not known


@dataclass(frozen=True)
class Description:
    """What users and the broker know of a device. Published as a JSON schema."""

    name: str
    technology: str
    qubits: int  # the largest problem: variables, qubits or atoms
    payloads: tuple[str, ...]  # of "qubo", "openqasm3", "pulser", "qrmi", "delay", "command"
    set_up_s: float = 0.0
    per_shot_s: float = 0.0
    lanes: int = 1  # tasks at once
    local_addressing: bool = True  # each variable, qubit or atom can be driven on its own
    emulated: bool = True
    notes: str = ""
    max_shots: int = 100_000  # of one task
    set_up_shared: bool = False  # a task that follows one with the same set-up key does not pay for set-up again
    tells_billed_s: bool = True  # whether the device says how many seconds it bills
    max_bits: int = 10_000  # classical bits of one circuit
    max_operations: int = 200_000  # of one task: gates, measurements, resets, with loops and definitions written out
    max_duration_ns: int = 100_000  # of one pulse sequence
    max_answer_bytes: int = 64 * 2**20  # of one task
    vendor_queue: bool = False  # tasks wait in a queue of the vendor's, too, which others may use
    max_used: int = 0  # qubits or atoms that a circuit or sequence may use, if fewer than `qubits`; 0: no fewer
    max_circuits: int = 10_000  # of one task
    target: DeviceTarget | None = None  # None: nothing is known of what it is made of
    compiles: bool = True  # whether it makes circuits fit its target itself
    can_stop: bool = True  # whether a task that executes can be ended
    options: tuple[str, ...] | None = None  # of a payload that it knows; None: not known, any is passed on

    @property
    def bounded(self) -> bool:
        """Whether the broker can say how long a task is there at most: otherwise no wait can be promised."""
        return self.can_stop and not self.vendor_queue


@plain_value
class Status:
    """How a task stands on its device: preparing, vendor_queued, executing, done, failed or cancelled."""

    state: str
    billed_s: float | None = None
    error: str = ""
    fault: bool = False  # the device's fault rather than the task's: it may be tried again
    calibration: str | None = None  # that the task was executed under, once it is done; None: not known


class Device(Protocol):
    """A QPU: emulated, in a process, or a vendor's machine."""

    description: Description
    outages_s: tuple[Outage, ...]  # that are planned

    def check(self, payload: Payload) -> None:
        """Raise `PayloadError` for a payload that this device cannot take, with both sizes if it is too large."""

    def seconds(self, payload: Payload) -> float:
        """How long a payload is expected to take, set-up included: what is admitted and reserved for it.

        A user's word counts only if the device itself keeps to it, as an emulated one does.
        """

    def set_up_key(self, payload: Payload) -> str | None:
        """Payloads with the same key need one set-up only: the same register, the same circuit."""

    async def start(self, token: str, payload: Payload) -> str:
        """Hand a task over; returns the device's own id for it. The same token gives the same id."""

    async def find(self, token: str) -> str | None:
        """The id of the task that was handed over with this token; None if there is none; may raise `CannotTell`."""

    async def wait(self, id: str) -> Status:
        """Return when the state of the task has changed or is final; raises `UnknownTask`.

        Changed means: another state than `wait` last returned for this task; the first call returns at once.
        """

    async def result(self, id: str) -> Any:
        """The answer of a task that is done: data, or `JsonText`, which is forwarded unread."""

    async def stop(self, id: str) -> None:
        """End a task that is no longer wanted. A task that is over is left as it is."""

    async def state(self) -> str:
        """One of `STATES`."""

    async def calibration(self) -> str | None:
        """The calibration that the device has now, as an opaque name: another one after each recalibration.

        None for a device that has none, or does not know. What a task was executed under is in its last `Status`.
        """
        return None

    async def tasks(self) -> dict[str, float]:
        """The vendor's books: billed seconds by task id, as far as it reports them."""

    async def close(self) -> None:
        """Let go of what this object holds; tasks on a remote device go on."""
