"""A workflow file that names an unknown location is refused in one line; StreamFlow's own answer is a `KeyError`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableMapping
from typing import Any

from streamflow.config.config import WorkflowConfig
from streamflow.core.exception import WorkflowDefinitionException


def problems(name: str, config: MutableMapping[str, Any]) -> Iterator[str]:
    """What the bindings of a workflow and the deployments name that is not there."""
    deployments = config.get("deployments") or config.get("models") or {}
    known = ", ".join(deployments) or "none"
    for binding in config["workflows"][name].get("bindings", ()):
        where = f"{'step' if 'step' in binding else 'port'} {binding.get('step') or binding.get('port')}"
        targets = binding["target"] if isinstance(binding["target"], list) else [binding["target"]]
        for target in targets:
            location = target.get("deployment") or target.get("model")
            if location not in deployments:
                yield f"{where} is put on {location!r}, and there is no such deployment: known are {known}"
                continue
            services = deployments[location].get("config", {}).get("services")
            service = target.get("service")
            if services is not None and service is not None and service not in services:
                has = ", ".join(services) or "none"
                yield f"{where} is put on service {service!r} of {location}, which is not there: it has {has}"
    for location, deployment in deployments.items():
        wraps = deployment.get("wraps")
        inner = wraps.get("deployment") if isinstance(wraps, MutableMapping) else wraps
        if inner is not None and inner not in deployments:
            yield f"deployment {location} wraps {inner!r}, and there is no such deployment: known are {known}"


def refuse_unknown_locations() -> None:
    """Have StreamFlow look at what a file names before it uses it; called once, when the plugin is registered."""
    read = WorkflowConfig.__init__

    @functools.wraps(read)
    def checked(self: WorkflowConfig, name: str, config: MutableMapping[str, Any]) -> None:
        for problem in problems(name, config):
            raise WorkflowDefinitionException(problem)
        read(self, name, config)

    WorkflowConfig.__init__ = checked  # type: ignore[method-assign]
