"""Guards a run against a policy that a user has written: what it returns, what it raises, what it changes.

Copying the state for each decision would cost more than deciding, so the state refuses to be changed meanwhile, at
next to no cost, and reports the line that tried. Its objects are given classes, and its collections are exchanged
for such, that look at one flag before each change. Reading them costs what it did; only the engine's changes become
a little slower, and only under such a policy. Built-in policies are held against brute force in the tests and are
not guarded.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from traceback import walk_tb
from typing import Any, NoReturn

import qloom
from qloom.errors import InputError, PolicyError
from qloom.lab.schedulers.policy import Decision, Policy, Resize, virtual_time
from qloom.lab.schedulers.state import Entry, PolicyLine, Resource, State

PACKAGE = qloom.__path__[0]
OWN_BOOKS = "a policy copies what it wants to change, and says what starts in its Decision"
IN_PLACE = ("__setitem__", "__delitem__", "clear", "pop")
ORDERED = (*IN_PLACE, "append", "extend", "insert", "remove", "reverse", "__iadd__", "__imul__")


class GuardedPolicy(Policy):
    """A user's policy, by name; whatever is wrong with it is a `PolicyError`."""

    def __init__(self, name: str, policy: Callable[..., Policy], options: dict[str, float]) -> None:
        self._name = name
        self._file = getattr(sys.modules[policy.__module__], "__file__", None) or ""
        try:
            made = policy(**options)
        except InputError:
            raise
        except Exception as error:
            raise PolicyError(f"policy {name} cannot be made: {described(error, self._file)}") from None
        try:
            self._decide, self.interval_s, self.depth = made.decide, float(made.interval_s), int(made.depth)
        except (AttributeError, TypeError, ValueError) as error:
            hint = "its __init__ must call super().__init__(**options)"
            raise PolicyError(f"policy {name} has no options of a policy: {error}", hint=hint) from None
        self._frozen: Frozen | None = None

    def decide(self, state: State) -> Decision:
        """What the policy decides, once that is known to be sound."""
        if self._frozen is None:
            self._frozen = Frozen(state)
        try:
            with self._frozen:
                decision = self._decide(state)
                if isinstance(decision, Decision) and not isinstance(decision.starts, list | tuple):
                    decision = decision._replace(starts=list(decision.starts))
        except StateChanged as error:
            what = f"changes the state that it was shown: {error}{_place(error, self._file)}"
            self._refuse(state.now_us, what, OWN_BOOKS)
        except Exception as error:
            self._refuse(state.now_us, f"raised {described(error, self._file)}")
        self._check(state, decision)
        return decision

    def _check(self, state: State, decision: Any) -> None:
        """Whether a decision is made of what it should be; the engine checks the amounts as it starts the jobs."""
        if not isinstance(decision, Decision):
            kind = "None" if decision is None else f"a {type(decision).__name__}"
            self._refuse(state.now_us, f"returned {kind} instead of a Decision", "return Decision(starts)")
        for start in decision.starts:
            if not isinstance(start, tuple) or len(start) != 2 or not isinstance(start[0], Entry):
                wrong = start[0] if isinstance(start, tuple) and start else start
                hint = "a start is a pair: the entry, and the amounts that it is given"
                self._refuse(state.now_us, f"starts {wrong!r}, which is no entry of state.waiting", hint)
        for resize in decision.resizes:
            self._check_resize(state, resize)
        if not isinstance(decision.again_us, int) or decision.again_us <= state.now_us:
            self._refuse(
                state.now_us,
                f"wants to be asked again at {decision.again_us}, which is not in the future",
                "again_us is in microseconds, later than state.now_us",
            )

    def _check_resize(self, state: State, resize: Any) -> None:
        if not isinstance(resize, Resize) or not isinstance(resize.entry, Entry):
            self._refuse(state.now_us, f"asks {resize!r} to resize, which is no Resize", "Resize(entry, nodes)")
        entry, nodes = resize
        if state.running.get(entry.id) is not entry or not entry.malleable:
            why = "is not malleable" if entry.id in state.running else "does not run"
            hint = "only entries of state.running with entry.malleable can be asked"
            self._refuse(state.now_us, f"asks job {entry.id} to resize, which {why}", hint)
        if not isinstance(nodes, int) or nodes < 1:
            what = f"asks job {entry.id} to keep to {nodes!r} nodes"
            self._refuse(state.now_us, what, "a whole number of at least 1")

    def _refuse(self, now_us: int, what: str, hint: str | None = None) -> NoReturn:
        raise PolicyError(f"policy {self._name} {what}, {virtual_time(now_us)}", hint=hint) from None


def described(error: Exception, own_file: str = "") -> str:
    """An exception with its message and the line of the user's own code that led to it."""
    message = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {message}".removesuffix(": ") + _place(error, own_file)


def _place(error: Exception, own_file: str) -> str:
    """The innermost line of the policy's own file, or else of any file that is not the package's."""
    lines = [(frame.f_code.co_filename, number) for frame, number in walk_tb(error.__traceback__)]
    outside = [(file, number) for file, number in lines if not file.startswith((PACKAGE, "<"))]
    own = [(file, number) for file, number in outside if file == own_file] or outside
    return f", {own[-1][0]}:{own[-1][1]}" if own else ""


class StateChanged(Exception):
    """Raised where a policy tries to change the state that it was shown."""


class _Flag:
    deciding = False


_flag = _Flag()


class Frozen:
    """Use as a context: inside, whatever changes the state raises `StateChanged`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lines = 0  # that are frozen already
        self._before = False
        for resource in state.resources.values():
            resource.__class__ = FrozenResource
            resource.ends = _labelled(FrozenList(resource.ends), f"ends of {resource.name}")
        for name in ("running", "resources", "lines"):
            setattr(state, name, _labelled(FrozenDict(getattr(state, name)), f"state.{name}"))
        state.arrived = _labelled(FrozenList(state.arrived), "state.arrived")
        state.__class__ = FrozenState

    def __enter__(self) -> None:
        state = self._state
        if len(state.lines) != self._lines:
            self._freeze_lines()
        for entry in state.arrived:
            if entry.__class__ is Entry:
                entry.__class__ = FrozenEntry
        self._before, _flag.deciding = _flag.deciding, True  # one such policy may ask another

    def __exit__(self, *_error: object) -> None:
        _flag.deciding = self._before

    def _freeze_lines(self) -> None:
        """Before its first pass a line has a queue and nothing else; what it makes later is as its queue is."""
        for names, line in self._state.lines.items():
            if line.__class__ is PolicyLine:
                line.queue = _labelled(FrozenDeque(line.queue), f"queue of {' and '.join(names)}")
                line.amounts, line.groups = FrozenList(line.amounts), FrozenList(line.groups)
                line.__class__ = FrozenLine
        self._lines = len(self._state.lines)


def _assign(self: Any, name: str, value: Any) -> None:
    if _flag.deciding:
        if isinstance(self, State):
            raise StateChanged(f"state.{name}")
        of = f"job {self.id}" if isinstance(self, Entry) else getattr(self, "name", "a line")
        raise StateChanged(f"{name} of {of}")
    object.__setattr__(self, name, value)


class FrozenState(State):
    """A state whose attributes a policy cannot change."""

    __setattr__ = _assign


class FrozenEntry(Entry):
    """An entry that a policy cannot change."""

    __slots__ = ()
    __setattr__ = _assign


class FrozenResource(Resource):
    """A resource that a policy cannot change."""

    __slots__ = ()
    __setattr__ = _assign


class FrozenLine(PolicyLine):
    """A line that a policy cannot change."""

    __slots__ = ()
    __setattr__ = _assign


def _freezing(kind: type, *changes: str) -> Any:
    """A kind of collection whose methods for change look at the flag first."""

    def looking_first(change: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *given: Any, **named: Any) -> Any:
            if _flag.deciding:
                raise StateChanged(self.label)
            return change(self, *given, **named)

        return method

    methods = {name: looking_first(getattr(kind, name)) for name in changes}
    return type(f"Frozen{kind.__name__.capitalize()}", (kind,), {"label": "what waits in a line", **methods})


def _labelled(collection: Any, label: str) -> Any:
    """What the error calls a collection."""
    collection.label = label
    return collection


FrozenList: Any = _freezing(list, *ORDERED, "sort")
FrozenDeque: Any = _freezing(deque, *ORDERED, "appendleft", "extendleft", "popleft", "rotate")
FrozenDict: Any = _freezing(dict, *IN_PLACE, "popitem", "setdefault", "update", "__ior__")
