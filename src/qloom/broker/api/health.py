"""What `/healthz` says: whether the broker can do its work, and if not, which part of it fails.

Anybody may ask, so it names devices, which `/metrics` shows as well, and nobody's tasks, paths or error texts. Those
are in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from qloom.broker.shell import Broker

FAILED = ("error", "offline")  # states of a device that nobody has planned


@dataclass(frozen=True)
class Health:
    """`ok`; `degraded`: it serves, but a device or the hook fails; `failing`: it accepts nothing."""

    status: str
    reasons: list[str] = field(default_factory=list)


def health(broker: Broker) -> Health:
    """How a broker is now."""
    reasons = [f"QPU {name} is {state}" for name, state in broker.states.items() if state in FAILED]
    if broker.state_hook is not None:
        reasons += [f"the hook fails for QPU {name}" for name in broker.state_hook.failing]
    if not broker.store.writable:
        return Health("failing", ["the store cannot be written", *reasons])
    return Health("degraded" if reasons else "ok", reasons)
