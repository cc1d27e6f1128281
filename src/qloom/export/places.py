"""Where the steps of a flow go: locations of a Slurm site, this machine, or the QPUs of a broker.

A file (TOML) can say it in a site's own terms:

    site = "slurm"                # or "local"
    quantum = "broker"            # or "partition" (Slurm), "here" (emulated on a node)
    [locations.compute]           # what sbatch is told, in the words of its options
    partition = "batch"
    account = "p123"
    [steps]                       # a step goes elsewhere than usual
    score = "compute"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.export.flow import COMPUTE, ONE_NODE, QUANTUM, Flow, Step

SITES = ("local", "slurm")
QUANTUM_WAYS = {"local": ("here", "broker"), "slurm": ("partition", "broker", "here")}
USUAL: dict[str, dict[str, Any]] = {
    COMPUTE: {"partition": "compute", "nodes": "1", "ntasks": 1},
    ONE_NODE: {"partition": "compute", "nodes": "1", "ntasks": 1},
    QUANTUM: {"partition": "quantum", "nodes": "1", "ntasks": 1, "gres": "qpu:1"},
}


@dataclass(frozen=True)
class Places:
    """A site as a workflow sees it."""

    site: str = "local"
    quantum: str = ""  # the first way of the site, if nothing is said
    broker: str | None = None
    device: str | None = None
    nodes: int = 3  # of this machine
    stock: bool = False  # only StreamFlow's own connectors
    locations: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: dict(USUAL[name]) for name in USUAL})
    steps: dict[str, str] = field(default_factory=dict)
    log: str | None = None  # a file that the plugin's connectors write what happens to

    def __post_init__(self) -> None:
        if self.site not in SITES:
            raise InputError(f"there is no kind of site {self.site!r}", hint=" or ".join(SITES))
        ways = QUANTUM_WAYS[self.site]
        if self.quantum and self.quantum not in ways:
            raise InputError(
                f"quantum steps cannot go to {self.quantum!r} on a {self.site} site", hint=" or ".join(ways)
            )
        object.__setattr__(self, "quantum", self.quantum or ways[0])
        if self.stock and self.quantum == "broker":
            raise InputError("the broker is reached by a connector of qloom's", hint="leave --stock out")


def read_places(path: Path, **said: Any) -> Places:
    """The places of a file, with what was said on the command line on top."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    known = {
        "site": str,
        "quantum": str,
        "broker": str,
        "device": str,
        "nodes": int,
        "locations": dict,
        "steps": dict,
    }
    for name, value in values.items():
        if name not in known:
            raise InputError(f"{path}: {name} is not a known key", hint=", ".join(known))
        if not isinstance(value, known[name]):
            raise InputError(f"{path}: {name} must be {_KINDS[known[name]]}")
    locations = {name: dict(USUAL[name]) for name in USUAL}
    for name, options in values.pop("locations", {}).items():
        if not isinstance(options, dict):
            raise InputError(f"{path}: locations.{name} must be a table of sbatch options")
        locations[name] = {"nodes": "1", "ntasks": 1, **locations.get(name, {}), **options}
        locations[name]["nodes"] = str(locations[name]["nodes"])
    given = {**values, **{name: value for name, value in said.items() if value is not None}}
    return Places(**given, locations=locations)


_KINDS: dict[type, str] = {str: "text", int: "a whole number", dict: "a table"}


def placed(flow: Flow, places: Places) -> Flow:
    """The flow with every step at a location that is there, and quantum steps as the site runs them."""
    names = [step.name for step in flow.steps()]
    for name, location in places.steps.items():
        if name not in names:
            raise InputError(f"there is no step {name!r} in {flow.name}", hint=f"it has: {', '.join(names)}")
        if location not in places.locations:
            known = ", ".join(places.locations)
            raise InputError(
                f"step {name} is put on {location!r}, and there is no such location", hint=f"known: {known}"
            )

    def place(step: Step) -> Step:
        step = replace(step, location=places.steps.get(step.name, step.location))
        if step.location == QUANTUM and step.payload is None and places.quantum == "broker":
            raise InputError(
                f"step {step.name} talks to the device itself, and the broker takes payloads only",
                hint="--quantum partition, or give it a location in [steps]",
            )
        if step.payload is None:
            return step
        if places.quantum == "broker":  # its devices draw a new answer each time
            payload = replace(step.payload, asked=None)
        else:  # the device is there: nothing stands in
            payload = replace(step.payload, candidate=False)
        return replace(step, payload=payload, outputs=payload.outputs())

    def all_placed(phases: tuple[tuple[Step, ...], ...]) -> tuple[tuple[Step, ...], ...]:
        return tuple(tuple(place(step) for step in phase) for phase in phases)

    return replace(flow, before=all_placed(flow.before), body=all_placed(flow.body), after=all_placed(flow.after))
