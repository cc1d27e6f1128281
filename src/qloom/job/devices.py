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
from qloom.device import DeviceTarget
from qloom.errors import PayloadError
from qloom.model import Payload, QuantumWork

NO_GATES = "OPENQASM 3.0; qubit q; bit c; c = measure q;"  # a circuit that every device takes that takes circuits


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

    def target(self, device: str | None) -> DeviceTarget | None:
        """What the device that circuits go to is made of; None if it compiles them itself or does not say."""
        try:
            description = self._broker.describe(self._broker.choose(Payload("openqasm3", NO_GATES, device=device)))
        except PayloadError:  # then whoever sends a circuit is answered so
            return None
        return None if description.compiles else description.target

    def can_do_without(self, device: str) -> bool:
        """Whether a hold of this device is of no use now: it is away and no call needs it."""
        if any(not optional for _, optional in self._calls.values()):
            return False
        return not self._broker.is_up(device) if self._calls else not self._broker.returns(device)
