"""The calls of a program in their order, beside those that the journal of an earlier driver holds.

A call is known by the content of its work. Its place in the order decides nothing; it serves to report how a program
differs from the one that wrote the journal. This module records calls and knows nothing of how they are carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import Repr
from typing import Any

from qloom.errors import PayloadError, ProgramChanged
from qloom.journal.content import call_key, digest
from qloom.journal.events import Called, Diverged
from qloom.journal.file import Recorder
from qloom.journal.replay import Memory
from qloom.model import QuantumWork, Work
from qloom.payloads.adapt import WITHOUT_SHOTS
from qloom.payloads.wire import facts_of

MOST_KEYS = 50  # of a dictionary whose values are shown
MOST_WORKS = 4  # of a call that are described
_PLAIN = (float, complex, bool, bytes, type(None))
LONGEST = 120  # characters that describe one of them


class CallOrder:
    """Which calls were made, made again, or are missing. New ones are recorded once all known ones were repeated."""

    def __init__(self, recorder: Recorder, memory: Memory) -> None:
        self._recorder = recorder
        self._known = memory.calls
        self._may_differ = memory.may_differ
        self.made = 0
        self._repeated: dict[str, None] = {}
        self._new: dict[int, Called] = {}  # by their place, until all known calls were made again
        self._unrecorded: list[Called] = []  # new calls, until the replayed ones are known to match

    def add(self, kind: str, names: list[str], works: Sequence[Work | QuantumWork]) -> str:
        """Note a call that the program makes; returns its name in the journal."""
        call = call_key(kind, works)
        order, self.made = self.made, self.made + 1
        if call in self._known:
            self._repeated[call] = None
        else:
            contents = [_in_brief(work) for work in works[:MOST_WORKS]] if self._recorder.is_on_disk else None
            shots, circuits = _shots_and_circuits(works)
            event = Called(
                call=call, order=order, kind=kind, names=names, contents=contents, shots=shots, circuits=circuits
            )
            self._unrecorded.append(event)
            if self.is_complete:
                self.record_new()
            else:
                self._new[order] = event
        return call

    @property
    def is_complete(self) -> bool:
        """Whether every call of the journal was made again."""
        return len(self._repeated) == len(self._known)

    def record_new(self) -> None:
        """Write the new calls made so far to the journal."""
        calls, self._unrecorded = self._unrecorded, []
        for call in calls:
            self._recorder.record(call)

    def require_complete(self) -> None:
        """Raise `ProgramChanged` for the first call that differs from the journal, or continue from there."""
        missing = [event for call, event in self._known.items() if call not in self._repeated]
        if not missing:
            return
        first = min(missing, key=lambda event: event.order)
        now = self._new.get(first.order) or next(iter(self._new.values()), None)
        if not self._may_differ:
            raise ProgramChanged(
                f"call {first.order + 1} differs from the journal: {_difference(first, now)}",
                job=self._recorder.job,
                hint="undo the change to the program, its parameters or libraries; or accept it: "
                "qloom resume --on-divergence continue",
            )
        forgotten = [event.call for event in missing]
        for call in forgotten:
            del self._known[call]
        then, is_now = _in_words(first), _in_words(now) if now is not None else None
        self._recorder.record(Diverged(order=first.order, then=then, now=is_now, forgotten=forgotten))


def _shots_and_circuits(works: Sequence[Work | QuantumWork]) -> tuple[int | None, int | None]:
    """Those of a quantum call: shots of each circuit, and circuits if the payload is made of them."""
    if not works or not isinstance(works[0], QuantumWork) or (payload := works[0].payload).kind in WITHOUT_SHOTS:
        return None, None
    if payload.kind != "openqasm3":
        return payload.shots, None
    try:
        return payload.shots, facts_of(payload).circuits
    except PayloadError:
        return payload.shots, None  # whoever is to run it says what is wrong


def _difference(then: Called, now: Called | None) -> str:
    """Both calls, and of each only the work in which they differ."""
    if now is None:
        return f"it was {_in_words(then)}, and the program no longer makes it"
    if then.contents and now.contents and then.kind == now.kind and len(then.names) == len(now.names):
        pairs = [(one, other) for one, other in zip(then.contents, now.contents, strict=True) if one != other]
        if pairs:
            return f"it was {then.kind}: {pairs[0][0]}, and is now {now.kind}: {pairs[0][1]}"
        return f"it was and is {_in_words(now)}, with other arguments than are shown"
    return f"it was {_in_words(then)}, and is now {_in_words(now)}"


def _in_words(call: Called) -> str:
    works = call.contents or call.names[:MOST_WORKS]
    more = f", and {len(call.names) - len(works)} more" if len(call.names) > len(works) else ""
    return f"{call.kind}({', '.join(works)}{more})"


class _Brief(Repr):
    """Values as a reader recognises them, whatever their size; the same in every process."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxtuple, self.maxarray = 3, 6, 6, 6
        self.maxstring = self.maxother = 50

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if level <= 0 or len(x) > MOST_KEYS:
            return f"{len(x)} values #{digest(x)[:6]}"
        keys = sorted(x, key=lambda key: self.repr1(key, 1))  # equal ones may have another order
        items = [f"{self.repr1(key, level - 1)}: {self.repr1(x[key], level - 1)}" for key in keys[:4]]
        return f"{{{', '.join(items + ['...'] * (len(x) > 4))}}}"

    def repr_set(self, x: set[Any], level: int) -> str:
        return self.repr_instance(x, level)

    def repr_instance(self, x: Any, level: int) -> str:
        if isinstance(x, _PLAIN) or type(x).__module__ == "numpy":
            return super().repr_instance(x, level)
        return f"{type(x).__name__} #{digest(x)[:6]}"  # its own text may hold an address, or a set in any order

    repr_frozenset = repr_set  # type: ignore[assignment]


_brief = _Brief()


def _in_brief(work: Work | QuantumWork) -> str:
    if isinstance(work, QuantumWork):
        payload = work.payload
        text = f"{payload.kind} {_brief.repr(payload.body)}, {payload.shots} shots"
    elif work.task.command is not None:
        text = " ".join(work.task.command)
    else:
        named = [f"{name}={_brief.repr(value)}" for name, value in work.task.kwargs.items()]
        text = f"{work.task.name}({', '.join([*map(_brief.repr, work.task.args), *named])})"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
