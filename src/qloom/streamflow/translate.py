"""From what StreamFlow's connectors and the steps have noted to the events of the journal.

Connectors note when a step asked for its place, got it and ended; steps note the program's tasks that they ran, with
their results; what a broker answered is read from the step's files. The journal is written whenever no step is under
way, in the order of time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qloom.export.flow import Flow, QuantumPart, identifier
from qloom.export.records import Record, read_records
from qloom.export.solve import read_answer, read_payload
from qloom.journal.content import digest, payload_key
from qloom.journal.event import Event
from qloom.journal.events import (
    Granted,
    QuantumEnded,
    QuantumQueued,
    QuantumStarted,
    Released,
    Requested,
    TaskEnded,
    TaskStarted,
    Withdrawn,
)
from qloom.journal.file import Recorder, ReplayedClock
from qloom.journal.results import ResultStore
from qloom.model import QpuHold
from qloom.slurm.squeue import expand_hostlist

Note = dict[str, Any]
TimedEvent = tuple[int, int, Event]  # when, a rank among events of the same instant, the event


@dataclass
class _Step:
    """One step under way."""

    lease: str
    device: str | None  # of a quantum step
    broker: bool  # the broker queues it; nothing is held
    notes: list[Note] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


class Translator:
    """The journal of one job, from its notes."""

    def __init__(
        self,
        flow: Flow,
        folder: Path,
        log: Path,
        recorder: Recorder,
        results: ResultStore,
        clock: ReplayedClock,
        device: str,
        shares: int,
    ) -> None:
        self._payloads: dict[str, QuantumPart] = {
            identifier(step.name): step.payload for step in flow.steps() if step.payload is not None
        }
        self._folder = folder
        self._log = log
        self._recorder = recorder
        self._results = results
        self._clock = clock
        self._device = device
        self._shares = shares
        self._read_to = 0
        self._known: dict[str, None] = {}
        self._steps: dict[str, _Step] = {}
        self._made = 0
        self._asked: Counter[str] = Counter()
        self.reasons: list[str] = []

    def look(self) -> None:
        """Take up what is new; write it if nothing is under way."""
        for note in self._new_notes():
            self._take(note)
        for record in read_records(self._folder, self._known):
            if record.step in self._steps:
                self._steps[record.step].records.append(record)
        if not any(step.notes[-1]["event"] != "ended" for step in self._steps.values()):
            self.write()

    def write(self) -> None:
        """Write what there is."""
        events = [event for step in self._steps.values() for event in self._events(step)]
        self._steps.clear()
        for at_us, _, event in sorted(events, key=lambda event: event[:2]):
            self._clock.set(at_us)
            self._recorder.record(event)

    def _new_notes(self) -> Iterator[Note]:
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read_to += len(line)
                yield json.loads(line)

    def _take(self, note: Note) -> None:
        name = note["step"]
        if name not in self._steps:
            self._made += 1
            quantum = note.get("service", "").startswith("quantum") or note.get("deployment") == "qpu-here"
            broker = note["event"] == "queued"
            device = note.get("device") or self._device
            self._steps[name] = _Step(
                f"{self._recorder.job}.{self._made}", device if quantum or broker else None, broker
            )
        self._steps[name].notes.append(note)
        if note["event"] == "ended" and note.get("reason"):
            self.reasons.append(f"step {name}: {note['reason']}")
        if "payload" in note:
            self._steps[name].records.append(self._answer(name, note))

    def _answer(self, step: str, note: Note) -> Record:
        """What a broker answered, from the files of the step."""
        asked = self._payloads.get(_name_of(step))
        said = (asked.shots or 100, asked.seconds, asked.device) if asked is not None else ()
        sent, _ = read_payload(Path(note["payload"]), *said)
        kept = self._results.keep(read_answer(Path(note["result"]), sent))
        return Record(step, payload_key(sent), _name_of(step), note["at_us"], note["at_us"], kept)

    def _events(self, step: _Step) -> list[TimedEvent]:
        """What a step did."""
        first, last = step.notes[0], step.notes[-1]
        ended_us = last["at_us"]
        granted = [note for note in step.notes if note["event"] in ("granted", "executing")]
        began_us = granted[0]["at_us"] if granted else ended_us
        nodes = (
            []
            if step.device
            else [name for note in step.notes for text in note.get("nodes", ()) for name in expand_hostlist(text)]
        )
        nodes = list(dict.fromkeys(nodes))
        hold = self._hold(step) if step.device else QpuHold.TASK.value
        events: list[TimedEvent] = []
        if not step.broker:
            count = 0 if step.device else max(1, len(nodes))
            asked = Requested(lease=step.lease, nodes=count, device=step.device, hold=hold)
            events.append((first["at_us"], 0, asked))
        ran = granted or last.get("state") == "done"
        if ran and not step.broker:
            lease = Granted(lease=step.lease, nodes=nodes)
            if step.device:
                lease = replace(lease, device=step.device, hold=hold, shares=self._shares)
            events.append((began_us, 1, lease))
        work = self._quantum(step, began_us, last) if step.device else self._classical(step, began_us, last, nodes)
        events += work if ran or step.broker else []
        if not step.broker:
            events.append((ended_us, 4, Released(lease=step.lease) if ran else Withdrawn(lease=step.lease)))
        return events

    def _classical(self, step: _Step, began_us: int, last: Note, nodes: list[str]) -> list[TimedEvent]:
        events: list[TimedEvent] = []
        for record in step.records:
            work = self._work(record.key)
            start_us, end_us = _within(record, began_us, last["at_us"])
            events.append((start_us, 2, TaskStarted(work=work, name=record.name, nodes=nodes)))
            events.append((end_us, 3, TaskEnded(work=work, state="done", result=record.result)))
        if last.get("state") != "done":
            work, name = self._work(digest("step", last["step"])), _name_of(last["step"])
            state = "failed" if last.get("state") == "failed" else "dropped"
            error = last.get("reason", "it did not end") if state == "failed" else None
            events.append((began_us, 2, TaskStarted(work=work, name=name, nodes=nodes)))
            events.append((last["at_us"], 3, TaskEnded(work=work, state=state, error=error)))
        return events

    def _quantum(self, step: _Step, began_us: int, last: Note) -> list[TimedEvent]:
        queued_us, ended_us = step.notes[0]["at_us"] if step.broker else began_us, last["at_us"]
        answer = step.records[-1] if last.get("state") == "done" and step.records else None
        if answer and not step.broker:  # a device that a step holds is busy for a part of that time
            began_us, ended_us = _within(answer, began_us, ended_us)
        key = answer.key if answer else digest("step", last["step"])
        work, device = self._work(key), step.device or ""
        state = "done" if answer else "failed" if last.get("state") == "failed" else "cancelled"
        result, error = answer.result if answer else None, last.get("reason")
        queued = QuantumQueued(work=work, name=_name_of(last["step"]), device=device, hold=self._hold(step))
        return [
            (queued_us, 2, queued),
            (began_us, 2, QuantumStarted(work=work, device=device)),
            (ended_us, 3, QuantumEnded(work=work, device=device, state=state, result=result, error=error)),
        ]

    def _hold(self, step: _Step) -> str:
        if step.broker:
            return QpuHold.TASK.value
        return QpuHold.SHARE.value if self._shares == 1 else QpuHold.WHOLE.value

    def _work(self, key: str) -> str:
        self._asked[key] += 1
        return f"{key}.{self._asked[key] - 1}"


def _within(record: Record, began_us: int, ended_us: int) -> tuple[int, int]:
    """When the work of a record began and ended, inside the time that its step had: clocks of nodes differ."""
    start_us = min(max(record.began_us, began_us), ended_us)
    return start_us, min(max(record.ended_us, start_us), ended_us)


def _name_of(step: str) -> str:
    """A step's own name in StreamFlow's: `/loop/NAME/0.1`."""
    return step.split("/")[-2]
