"""Which QPU a job holds: the one that its calls need.

A strategy asks for a hold before it knows of a payload. The hold is of the device that suits the quantum call which
waits for it; without one, of the device that the program has declared or used last; at the start of a program that
says nothing, of any. If the guess was wrong, the call that comes exchanges the hold if no task has used it, and else
takes hold of its own device beside it. The strategy gives all of them back when it gives the first one back.

A device that is away is left out of what a job holds, unless a call needs it: a program whose calls have classical
candidates runs under every strategy.
"""

from __future__ import annotations

from qloom.broker.port import BrokerPort
from qloom.device import Description
from qloom.errors import PayloadError
from qloom.model import Payload, QuantumWork

# by kind, what every device takes that takes payloads of this kind
SMALLEST = {
    "openqasm3": "OPENQASM 3.0; qubit q; bit c; c = measure q;",
    "qubo": {"linear": [[0, 0.0]], "quadratic": [], "offset": 0.0},
}


class DeviceWish:
    """What one job has said and shown of the QPUs that it needs."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._calls: dict[str, tuple[Payload, bool]] = {}  # that are out, and whether something else may run instead
        self._last: Payload | None = None  # declared, or of the last call

    def declare(self, payload: Payload) -> None:
        """The next quantum call will be like this one."""
        self._broker.choose(payload)
        self._last = payload

    def expect(self, work: QuantumWork, *, optional: bool = False) -> None:
        """A call waits for a QPU; an optional one has a classical candidate."""
        self._calls[work.id] = (work.payload, optional)
        self._last = work.payload

    def forget(self, work: QuantumWork) -> None:
        """The call waits no more."""
        self._calls.pop(work.id, None)

    def device(self) -> str:
        """The device of a new hold."""
        firm = [payload for payload, optional in self._calls.values() if not optional]
        candidates = [payload for payload, _ in self._calls.values()]
        wanted = next(iter(firm or candidates), self._last)
        try:
            return self._broker.choose(wanted)
        except PayloadError:  # whoever sent it is answered so; the hold is for those that come
            return self._broker.choose()

    def describe(self, kind: str, device: str | None) -> Description | None:
        """The device that payloads of this kind go to, chosen now if none is named; None if no device takes them."""
        try:
            return self._broker.describe(self._broker.choose(Payload(kind, SMALLEST[kind], device=device)))
        except PayloadError:  # then whoever sends one is answered so
            return None

    def can_do_without(self, device: str) -> bool:
        """Whether a hold of this device is of no use now: it is away and no call needs it."""
        if any(not optional for _, optional in self._calls.values()):
            return False
        return not self._broker.is_up(device) if self._calls else not self._broker.returns(device)
