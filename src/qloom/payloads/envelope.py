"""A payload on its way: a small head that everybody reads, and a body that only those who need it read.

A body may be megabytes of JSON. It travels as text, so that the broker's event loop passes it on without reading it;
what the queue and the devices have to know of it are its `Facts`, found once, in a limited process if it is large.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


class JsonText(str):
    """JSON that was not read: passed on and stored as it is."""

    __slots__ = ()


def json_text(value: Any) -> JsonText:
    """A value as JSON; raises `ValueError` for NaN and infinities. Text that was not read stays as it is."""
    return value if isinstance(value, JsonText) else JsonText(json.dumps(value, allow_nan=False))


@dataclass(frozen=True)
class Facts:
    """What a check needs to know of a body, whatever the device."""

    size: int = 0  # variables, qubits or atoms; of several circuits the largest
    bits: int = 0  # classical bits of the largest circuit
    operations: int = 0  # of all circuits, with loops and gate definitions written out
    duration_ns: int = 0  # of a pulse sequence
    circuits: int = 1
    shots: int = 0  # that a vendor's own payload asks for; 0: it does not say
    local: str = ""  # what drives variables, qubits or atoms one by one; empty if nothing does
    set_up: str | None = None  # the set-up key


class Envelope:
    """A payload with its tag: never a pickle. `body` is a JSON-like value, or `JsonText`."""

    def __init__(
        self,
        kind: str,
        body: Any,
        shots: int = 100,
        seconds: float | None = None,  # for emulated devices: how long it takes, whatever the technology
        options: dict[str, Any] | None = None,
        *,
        facts: Facts | None = None,
    ) -> None:
        self.kind = kind
        self.shots = shots
        self.seconds = seconds
        self.options: dict[str, Any] = {} if options is None else options
        self._body = body
        self._text = body if isinstance(body, JsonText) else None
        self._facts = facts

    @property
    def body(self) -> Any:
        """The value; text is read when the value is first asked for."""
        if isinstance(self._body, JsonText):
            self._body = json.loads(self._body)
        return self._body

    @property
    def text(self) -> JsonText:
        """The body as JSON; raises `ValueError` for what is not JSON."""
        if self._text is None:
            self._text = json_text(self._body)
        return self._text

    @property
    def facts(self) -> Facts:
        """What there is to know of the body; raises `PayloadError` for one that cannot be read."""
        if self._facts is None:
            from qloom.payloads.read import read_facts

            self._facts = read_facts(self.kind, self.body)
        return self._facts

    def head(self) -> dict[str, Any]:
        """Everything but the body."""
        return {
            "kind": self.kind,
            "shots": self.shots,
            "seconds": self.seconds,
            "options": self.options,
            "facts": asdict(self.facts),
        }

    @classmethod
    def under(cls, head: dict[str, Any], body: str) -> Envelope:
        """The envelope of a head and the text of its body."""
        facts = Facts(**head["facts"])
        return cls(head["kind"], JsonText(body), head["shots"], head["seconds"], head["options"], facts=facts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Envelope):
            return NotImplemented
        mine = (self.kind, self.shots, self.seconds, self.options)
        return mine == (other.kind, other.shots, other.seconds, other.options) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Envelope({self.kind!r}, shots={self.shots}, seconds={self.seconds})"
