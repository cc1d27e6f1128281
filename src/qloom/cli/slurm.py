"""`qloom slurm`: for users and administrators of a Slurm site."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from qloom.cli import slurmsite
from qloom.cli.broker import table

app = typer.Typer(help="QPUs and hybrid jobs on Slurm.", no_args_is_help=True, rich_markup_mode=None)
slurmsite.add_to(app)


@app.command()
def reap(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Release allocations that your dead drivers have left. Running or pending ones; live drivers keep theirs."""
    from qloom.slurm import reap as reaper
    from qloom.slurm.facts import require_programs

    require_programs()
    rows = reaper.leaked() if dry_run else reaper.reap()
    found = [{"job": row.id, "name": row.name, "state": row.state.name, "nodes": ",".join(row.nodes)} for row in rows]
    if as_json:
        print(json.dumps(found))
    elif not found:
        print("no allocation of yours has lost its driver")
    else:
        Console().print("without a driver:" if dry_run else "released:")
        Console().print(table(("job", "name", "state", "nodes"), found))


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.add_typer(app, name="slurm")
