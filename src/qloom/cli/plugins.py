"""`qloom plugins`: what can be named in commands and files, and the package that each is from."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from qloom.cli.broker import table
from qloom.devices.factory import DEVICES
from qloom.lab.schedulers import POLICIES
from qloom.runs.plan import ENGINES
from qloom.strategies import STRATEGIES
from qloom.worlds import WORLDS


def add_to(parent: typer.Typer) -> None:
    """Register the command of this file."""
    parent.command()(plugins)


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List strategies, worlds, devices, policies and engines."""
    rows = [
        {"kind": registry.kind, "name": entry.name, "from": entry.origin, "target": entry.target, "problem": problem}
        for registry in (STRATEGIES, WORLDS, DEVICES, POLICIES, ENGINES)
        for entry, problem in registry.plug_ins()
    ]
    if as_json:
        print(json.dumps(rows))
    else:
        Console().print(
            table(("kind", "name", "from", *(["problem"] if any(row["problem"] for row in rows) else [])), rows)
        )
