"""The file that StreamFlow runs: which step goes to which location, and what the locations are."""

from __future__ import annotations

from typing import Any

from qloom.export.cwl import JUDGE, main_file
from qloom.export.flow import ONE_NODE, QUANTUM, Flow, Step, identifier
from qloom.export.places import Places

SITE, HERE, QPU, CANDIDATE = "site", "here", "qpu", "candidate"
STOCK_POLLING_S = 1  # the stock connector takes whole seconds


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
