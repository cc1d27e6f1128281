"""The tasks of a journal as actions of a crate: classical ones on nodes, quantum ones on devices, with times."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from qloom.export.flow import identifier
from qloom.journal.event import Event
from qloom.journal.events import QuantumEnded, RunStarted, TaskEnded
from qloom.journal.fold import fold
from qloom.journal.intervals import Interval

Entity = dict[str, Any]
COMPLETED, FAILED = "http://schema.org/CompletedActionStatus", "http://schema.org/FailedActionStatus"


@dataclass
class Actions:
    """Every kind of task is a step with a tool; every task is an action of its tool."""

    actions: list[Entity] = field(default_factory=list)
    controls: list[Entity] = field(default_factory=list)
    steps: list[Entity] = field(default_factory=list)
    tools: list[Entity] = field(default_factory=list)
    devices: list[Entity] = field(default_factory=list)


def reference(name: str) -> Entity:
    """An entity that stands elsewhere in the graph."""
    return {"@id": name}


def time_of(start: RunStarted, at_us: int) -> str:
    """A time of the journal, as ISO 8601; virtual time begins with 1970."""
    return datetime.fromtimestamp(((start.epoch_us or 0) + at_us) / 1e6, UTC).isoformat(timespec="milliseconds")


def actions_of(events: list[Event]) -> Actions:
    """All tasks of a run, in the order of their ends."""
    run = fold(events)
    made, start = Actions(), run.start
    kinds: dict[str, str] = {}
    devices: dict[str, str] = {}
    for task in run.trace.busy:
        if task.ended is not None:  # else its driver was killed
            device = f"#device-{_label(devices, task.resource)}" if task.kind == "quantum" else None
            _add(made, start, task, task.ended, _label(kinds, task.label), device)
    for place, (name, kind) in enumerate(kinds.items(), 1):
        _describe(made, name, kind, place, start.qloom)
    made.devices += [
        {"@id": f"#device-{label}", "@type": "IndividualProduct", "name": f"QPU {name}"}
        for name, label in devices.items()
    ]
    return made


def _label(labels: dict[str, str], name: str) -> str:
    """What a name is called in the graph: no other is called the same."""
    if name not in labels:
        label = identifier(name)
        labels[name] = f"{label}-{len(labels)}" if label in labels.values() else label
    return labels[name]


def _add(
    made: Actions,
    start: RunStarted,
    task: Interval,
    ended: TaskEnded | QuantumEnded,
    kind: str,
    device: str | None,
) -> None:
    name, label = task.label, f"{task.job}-{task.work}-{ended.n}"
    nodes = task.resources if task.kind != "quantum" else ()
    where = {"location": reference(device)} if device else {}
    done = ended.state == "done"
    action: Entity = {
        "@id": f"#action-{label}",
        "@type": "CreateAction",
        "name": f"{name} of {task.job}" + (f" on {', '.join(nodes)}" if nodes else ""),
        "description": f"{'quantum' if task.kind == 'quantum' else 'classical'} task {task.work}",
        "instrument": reference(f"#tool-{kind}"),
        "startTime": time_of(start, task.begin_us),
        "endTime": time_of(start, ended.at_us),
        "actionStatus": COMPLETED if done else FAILED,
        **where,
    }
    if not done:
        action["error"] = ended.error or ended.state
    control: Entity = {
        "@id": f"#control-{label}",
        "@type": "ControlAction",
        "name": f"start of {name}",
        "instrument": reference(f"#step-{kind}"),
        "object": reference(action["@id"]),
    }
    made.actions.append(action)
    made.controls.append(control)


def _describe(made: Actions, name: str, kind: str, place: int, version: str) -> None:
    tool = f"#tool-{kind}"
    made.tools.append({"@id": tool, "@type": "SoftwareApplication", "name": name, "softwareVersion": version})
    made.steps.append(
        {
            "@id": f"#step-{kind}",
            "@type": "HowToStep",
            "position": str(place),
            "workExample": reference(tool),
        }
    )
