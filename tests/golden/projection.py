"""A run in plain rows: who held what and when, who waited for what, every task with its result.

Rows name no field and no class, and events of one instant have no order, so that code can be moved without moving
a row. What a row says is what a user could see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qloom.journal.event import Event as JournalEvent
from qloom.model import Sample

LONGEST = 60  # characters of a result that a row shows in full
OPEN_US = -1  # the end of what never ended

Event = Mapping[str, Any]
Row = tuple[int, int, str]  # from, until (microseconds), what
Load = Callable[[Any], Any]  # a result as it is kept -> the result


def rows_of(events: Sequence[JournalEvent], load: Load) -> list[str]:
    """The rows of one journal, in the order of time."""
    story = _Story(load)
    for event in events:
        story.tell(event.as_dict())
    return written(story.rows())


def written(rows: Sequence[Row]) -> list[str]:
    """Rows as text, with times in seconds."""
    return [f"{_seconds(begin)} {_seconds(end)} {what}" for begin, end, what in sorted(rows)]


def _seconds(time_us: int) -> str:
    return "-" if time_us == OPEN_US else f"{time_us / 1e6:.6f}"


def value_in_words(value: Any) -> str:
    """A result; a long one by its digest."""
    text = _plain(value)
    return text if len(text) <= LONGEST else f"#{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _plain(value: Any) -> str:
    if isinstance(value, Sample):
        return f"{_plain(dict(sorted(value.values.items(), key=str)))} with energy {value.energy!r}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_plain(key)}: {_plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_plain(item) for item in value) + "]"
    return repr(value)


class _Story:
    """What has begun and not ended, and the rows of what has."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._rows: list[Row] = []
        self._begun: dict[tuple[str, ...], list[tuple[int, str]]] = {}  # by whom and what -> since when, in words

    def rows(self) -> list[Row]:
        """All rows; what is still open has no end."""
        still_open = [(since, OPEN_US, what) for begun in self._begun.values() for since, what in begun]
        return self._rows + still_open

    def _moment(self, event: Event, what: str) -> None:
        self._rows.append((event["at_us"], event["at_us"], what))

    def _begin(self, event: Event, *key: str, what: str) -> None:
        self._begun.setdefault(key, []).append((event["at_us"], what))

    def _end(self, event: Event, *key: str, how: str = "") -> None:
        since, what = self._begun[key].pop(0)
        if not self._begun[key]:
            del self._begun[key]
        self._rows.append((since, event["at_us"], f"{what}{how}"))

    def _still_open(self, *start: str) -> list[tuple[str, ...]]:
        return [key for key in self._begun if key[: len(start)] == start]

    def tell(self, event: Event) -> None:
        """Take one event in."""
        job = event.get("job", "")
        match event["event"]:
            case "run_started":
                pass
            case "resumed":
                for key in list(self._begun):  # whoever had begun it was killed, or had handed it on
                    while key in self._begun:
                        self._end(event, *key, how=": until the run was resumed")
                self._moment(event, "the run is resumed")
            case "run_ended":
                self._moment(event, f"the run ends: {event.get('state', 'done')}")
            case "job_submitted":
                self._moment(event, f"{job} is submitted")
            case "job_ended":
                self._moment(event, f"{job} ends: {event['state']}{self._result(event)}")
            case "called" | "returned":
                self._call(event, job)
            case "requested" | "queued_ahead" | "granted" | "grown" | "withdrawn":
                self._line(event, job)
            case "shrunk" | "qpu_released" | "released":
                self._give_back(event, job)
            case "task_started" | "task_ended" | "quantum_queued" | "quantum_started" | "quantum_ended":
                self._work(event, job)
            case "speculated":
                self._moment(event, f"{job} offers spare work: {', '.join(event['names'])}")
            case "claimed":
                self._moment(event, f"{job} asks for spare work that was begun")
            case "candidate":
                self._moment(event, f"{job} has a choice: {event['choice']}")
            case "qpu_budget_spent":
                self._moment(event, f"the run has held {event['most_qpu_s']} QPU-seconds")
            case "diverged":
                self._moment(event, f"{job} differs from its journal")
            case "call_abandoned":
                pass  # the row of the call has no end, and says as much
            case "program_computed":
                self._rows.append((event["at_us"] - round(event["seconds"] * 1e6), event["at_us"], f"{job} computes"))
            case "result_lost":
                self._moment(event, f"{job} has lost a result")
            case unknown:
                raise AssertionError(f"say here in words what the event {unknown} means: {event}")

    def _result(self, event: Event) -> str:
        return f", {value_in_words(self._load(event['result']))}" if "result" in event else ""

    def _call(self, event: Event, job: str) -> None:
        if event["event"] == "called":
            what = f"{job} calls {event['kind']}({', '.join(event['names'])})"
            self._begin(event, "call", job, event["call"], what=what)
        elif self._still_open("call", job, event["call"]):
            self._end(event, "call", job, event["call"])  # one that was replayed is called in no event

    def _line(self, event: Event, job: str) -> None:
        lease = event["lease"]
        match event["event"]:
            case "requested" | "queued_ahead":
                if self._still_open("ahead", lease):
                    self._end(event, "ahead", lease)
                things = [f"{event['nodes']} nodes"] if event["nodes"] else []
                things += [f"{event['device']} ({event['hold']})"] if event.get("device") else []
                more = " more" if event.get("grow") else " for spare work" if event.get("spare") else ""
                ahead = event["event"] == "queued_ahead"
                what = f"{job} {'stands ahead' if ahead else 'waits'} for {' and '.join(things)}{more}"
                self._begin(event, "ahead" if ahead else "wait", lease, what=what)
            case "withdrawn":
                self._end(event, "wait" if self._still_open("wait", lease) else "ahead", lease, how=": withdrawn")
            case "granted" | "grown":
                self._end(event, "wait", lease, how=": granted")
                for node in event["nodes"]:
                    self._begin(event, "held", lease, node, what=f"{job} holds {node}{_engine(event)}")
                if event.get("device"):
                    what = f"{job} holds {event['shares']} shares of {event['device']}{_engine(event)}"
                    self._begin(event, "held qpu", lease, what=what)

    def _give_back(self, event: Event, job: str) -> None:
        lease, how = event["lease"], _engine(event)
        if event["event"] == "shrunk":
            how += ": the node was lost" if event.get("lost") else ""
            for node in event["nodes"]:
                self._end(event, "held", lease, node, how=how)
        elif event["event"] == "qpu_released":
            self._end(event, "held qpu", lease, how=how)
        else:
            for key in [*self._still_open("held", lease), *self._still_open("held qpu", lease)]:
                self._end(event, *key, how=how)

    def _work(self, event: Event, job: str) -> None:
        work = event["work"]
        match event["event"]:
            case "task_started":
                spare = " as spare work" if event.get("spare") else ""
                what = f"{job} runs {event['name']} on {' '.join(event['nodes'])}{spare}"
                self._begin(event, "task", job, work, what=what)
            case "task_ended":
                took = f" in {event['seconds']:.6f} s" if "seconds" in event else ""
                self._end(event, "task", job, work, how=f": {event['state']}{took}{self._result(event)}")
            case "quantum_queued":
                what = f"{job} queues {event['name']} at {event['device']} ({event['hold']})"
                self._begin(event, "queue", job, work, what=what)
            case "quantum_started":
                self._end(event, "queue", job, work)
                self._begin(event, "quantum", job, work, what=f"{job} executes on {event['device']}")
            case "quantum_ended":
                kind = "quantum" if self._still_open("quantum", job, work) else "queue"
                self._end(event, kind, job, work, how=f": {event['state']}{self._result(event)}")


def _engine(event: Event) -> str:
    """The engine's own time, where it differs."""
    engine_us = event.get("engine_us", event["at_us"])
    return "" if engine_us == event["at_us"] else f" (engine: {_seconds(engine_us)})"
