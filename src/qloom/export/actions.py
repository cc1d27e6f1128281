"""The tasks of a journal as actions of a crate: classical ones on nodes, quantum ones on devices, with times."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from qloom.export.flow import identifier
from qloom.journal.file import Event

Entity = dict[str, Any]
COMPLETED, FAILED = "http://schema.org/CompletedActionStatus", "http://schema.org/FailedActionStatus"
STARTS, ENDS = ("task_started", "quantum_started"), ("task_ended", "quantum_ended")


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


def time_of(start: Event, at_us: int) -> str:
    """A time of the journal, as ISO 8601; virtual time begins with 1970."""
    return datetime.fromtimestamp((start.get("epoch_us", 0) + at_us) / 1e6, UTC).isoformat(timespec="milliseconds")


def actions_of(events: list[Event]) -> Actions:
    """All tasks of a run, in the order of their ends."""
    made = Actions()
    begun: dict[tuple[str, str], Event] = {}
    names: dict[tuple[str, str], str] = {}
    kinds: dict[str, str] = {}
    devices: dict[str, str] = {}
    for event in events:
        key = (event.get("job", ""), event.get("work", ""))
        if "name" in event:
            names[key] = event["name"]
        if event["event"] in STARTS:
            begun[key] = event
        elif event["event"] in ENDS and key in begun:
            name = names.get(key, "task")
            device = f"#device-{_label(devices, event['device'])}" if "device" in event else None
            _add(made, events[0], begun.pop(key), event, name, _label(kinds, name), device)
    for place, (name, kind) in enumerate(kinds.items(), 1):
        _describe(made, name, kind, place, str(events[0]["qloom"]))
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


def _add(made: Actions, start: Event, begun: Event, ended: Event, name: str, kind: str, device: str | None) -> None:
    label = f"{ended['job']}-{ended['work']}-{ended['n']}"
    where = {"location": reference(device)} if device else {}
    done = ended["state"] == "done"
    action: Entity = {
        "@id": f"#action-{label}",
        "@type": "CreateAction",
        "name": f"{name} of {ended['job']}" + (f" on {', '.join(begun['nodes'])}" if begun.get("nodes") else ""),
        "description": f"{'quantum' if 'device' in ended else 'classical'} task {ended['work']}",
        "instrument": reference(f"#tool-{kind}"),
        "startTime": time_of(start, begun["at_us"]),
        "endTime": time_of(start, ended["at_us"]),
        "actionStatus": COMPLETED if done else FAILED,
        **where,
    }
    if not done:
        action["error"] = ended.get("error") or ended["state"]
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
