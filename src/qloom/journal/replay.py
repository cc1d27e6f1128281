"""What a journal already knows: results by content and occurrence, and the calls in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.journal.file import Event


@dataclass
class Memory:
    """What one job has done before. Empty for a new job."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # work id -> how its result was kept
    calls: dict[str, Event] = field(default_factory=dict)  # call id -> the event that recorded it, in order
    durations_us: dict[str, int] = field(default_factory=dict)  # work id -> how long it ran


def recall(events: Sequence[Event], job: str | None = None) -> Memory:
    """The memory of one job of a run, or (job None) of all its jobs together."""
    memory = Memory()
    started: dict[tuple[str, str], int] = {}
    for event in events:
        if job is not None and event.get("job") != job:
            continue
        match event["event"]:
            case "called":
                memory.calls[event["call"]] = event
            case "task_started" | "quantum_started":
                started[event["job"], event["work"]] = event["at_us"]
            case "task_ended" | "quantum_ended" if event["state"] == "done":
                memory.results.setdefault(event["work"], event["result"])
                begun_us = started.get((event["job"], event["work"]), event["at_us"])
                memory.durations_us.setdefault(event["work"], event["at_us"] - begun_us)
            case "candidate" if event["choice"] == "classical" and "result" in event:
                memory.results.setdefault(event["work"], event["result"])
    return memory
