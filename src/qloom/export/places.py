"""Where the steps of a flow go: locations of a Slurm site, this machine, or the QPUs of a broker.

The file that StreamFlow runs is made from it. A file (TOML) can say it in a site's own terms:

    site = "slurm"                # or "local"
    quantum = "broker"            # or "partition" (Slurm), "here" (emulated on a node)
    [locations.compute]           # options of sbatch, in its words
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
from qloom.export.cwl import JUDGE, main_file
from qloom.export.flow import COMPUTE, ONE_NODE, QUANTUM, Flow, Step, identifier

SITES = ("local", "slurm")
QUANTUM_WAYS = {"local": ("here", "broker"), "slurm": ("partition", "broker", "here")}
USUAL: dict[str, dict[str, Any]] = {
    COMPUTE: {"partition": "compute", "nodes": "1", "ntasks": 1},
    ONE_NODE: {"partition": "compute", "nodes": "1", "ntasks": 1},
    QUANTUM: {"partition": "quantum", "nodes": "1", "ntasks": 1, "gres": "qpu:1"},
}
_KINDS: dict[type, str] = {str: "text", int: "a whole number", dict: "a table"}
SITE, HERE, QPU, CANDIDATE = "site", "here", "qpu", "candidate"
STOCK_POLLING_S = 1  # the stock connector takes whole seconds


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
            raise InputError(f"unknown kind of site {self.site!r}", hint=" or ".join(SITES))
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


def streamflow_file(flow: Flow, places: Places) -> dict[str, Any]:
    """The content of streamflow.yml."""
    inner = [step for phase in flow.body for step in phase]
    bindings = [_binding(step, "/loop/" if flow.loops and step in inner else "/", places) for step in flow.steps()]
    if flow.loops:
        bindings.append({"step": f"/loop/{JUDGE}", "target": {"deployment": HERE}})
    file: dict[str, Any] = {
        "version": "v1.0",
        "workflows": {
            identifier(flow.name): {
                "type": "cwl",
                "config": {"file": main_file(flow), "settings": "inputs.yml"},
                "bindings": bindings,
            }
        },
        "deployments": _deployments(flow, places),
    }
    if any(_is_candidate(step) for step in flow.steps()):
        config = {"broker": places.broker, "device": places.device, "longestWait": _longest_wait_s(flow)}
        file["bindingFilters"] = {CANDIDATE: {"type": "qpu-candidate", "config": _said(config)}}
    file["database"] = {"type": "default", "config": {"connection": "streamflow.db"}}
    return file


def _binding(step: Step, prefix: str, places: Places) -> dict[str, Any]:
    binding: dict[str, Any] = {"step": f"{prefix}{identifier(step.name)}"}
    if step.payload is None or places.quantum != "broker" or step.location != QUANTUM:
        binding["target"] = _target(step, step.location, places)
    elif _is_candidate(step):
        binding["target"] = [{"deployment": QPU}, _target(step, ONE_NODE, places)]
        binding["filters"] = [CANDIDATE]
    else:
        binding["target"] = {"deployment": QPU}
    return binding


def _target(step: Step, location: str, places: Places) -> dict[str, Any]:
    if places.site == "slurm" and not (location == QUANTUM and places.quantum == "here"):
        return {"deployment": SITE, "service": service_name(location, step)}
    if places.stock:
        return {"deployment": HERE}
    return {"deployment": "qpu-here" if location == QUANTUM else SITE if places.site == "local" else HERE}


def service_name(location: str, step: Step) -> str:
    """A location with the size that a step needs."""
    size = "" if step.nodes == 1 else f"-{step.nodes}-nodes"
    cpus = "" if step.cpus == 1 else f"-{step.cpus}-cpus"
    memory = "" if not step.memory_mb else f"-{step.memory_mb}-mb"
    return f"{location}{size}{cpus}{memory}"


def _deployments(flow: Flow, places: Places) -> dict[str, Any]:
    log = {"log": places.log} if places.log and not places.stock else {}
    deployments: dict[str, Any] = {HERE: {"type": "local", "config": {}}}
    if places.site == "slurm":
        services = {}
        for step in flow.steps():
            used = ONE_NODE if step.location == QUANTUM and places.quantum == "broker" else step.location
            services[service_name(used, step)] = {**places.locations[used], **size_of(step)}
        config: dict[str, Any] = {"services": services, **log}
        if places.stock:
            config |= {"maxConcurrentJobs": 1000, "pollingInterval": STOCK_POLLING_S}
        kind = "slurm" if places.stock else "qloom-slurm"
        deployments[SITE] = {"type": kind, "wraps": HERE, "config": config}
    elif not places.stock:
        nodes = [f"n{number}" for number in range(1, places.nodes + 1)]
        deployments[SITE] = {"type": "qloom-nodes", "config": {"nodes": nodes, **log}}
    if places.quantum == "broker":
        config = _said({"broker": places.broker, "device": places.device, **log})
        deployments[QPU] = {"type": "qpu", "config": config}
    elif places.quantum == "here" and not places.stock:
        deployments["qpu-here"] = {"type": "qloom-nodes", "config": {"nodes": [places.device or "qpu"], **log}}
    for deployment in deployments.values():
        deployment["workdir"] = "work"
    return deployments


def size_of(step: Step) -> dict[str, Any]:
    """What a step needs beyond one task on one node, as options of sbatch."""
    size: dict[str, Any] = {"nodes": str(step.nodes)} if step.nodes > 1 else {}
    size |= {"cpusPerTask": step.cpus} if step.cpus > 1 else {}
    return size | ({"mem": f"{step.memory_mb}M"} if step.memory_mb else {})


def _is_candidate(step: Step) -> bool:
    return step.payload is not None and step.payload.candidate


def _longest_wait_s(flow: Flow) -> float | None:
    """A stand-in runs if the wait for the device is longer than it takes; the most patient of several decides."""
    waits = [step.payload.classical_s for step in flow.steps() if step.payload is not None and step.payload.candidate]
    return max((wait for wait in waits if wait is not None), default=None)


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
