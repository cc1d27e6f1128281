"""`qloom mpi`: MPI programs that change their size while they run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from qloom.errors import InputError

app = typer.Typer(help="MPI programs that change their size while they run.", no_args_is_help=True)
STOPPED = 75  # as sysexits.h has it: try again later
DIRECTORY = typer.Option("--directory", help="For saved state and events; all nodes must see it.")
PASS_ON = {"allow_interspersed_args": False}  # what follows the program is the program's


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.add_typer(app, name="mpi")


def _range(text: str) -> tuple[int, int]:
    least, _, most = text.partition("-")
    if not (least.isdigit() and (most or least).isdigit()):
        raise InputError(f"{text!r} is not a number of nodes", hint="--nodes 1-3")
    return int(least), int(most or least)


@app.command(context_settings=PASS_ON)
def run(
    program: Annotated[list[str], typer.Argument(help="A Python file or a command, and its arguments.")],
    nodes: Annotated[str, typer.Option(help="The fewest and the most nodes, as in 1-3.")] = "1",
    start: Annotated[int | None, typer.Option(help="Nodes to start on; the fewest, or all of the Slurm job.")] = None,
    ranks_per_node: Annotated[int, typer.Option(help="MPI ranks on each node.")] = 1,
    world: Annotated[str, typer.Option(help="local or slurm.")] = "local",
    directory: Annotated[Path, DIRECTORY] = Path("elastic"),
    patience_s: Annotated[float, typer.Option(help="How long a request for nodes may wait in the queue.")] = 60.0,
    site: Annotated[Path | None, typer.Option(help="A site file (TOML): its table [slurm] is read.")] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time", help="Time limit of Slurm allocations. [default: the site's, or 60]")
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(help="For every allocation: a key of the site's [slurm], key=value, or a word of salloc's."),
    ] = None,
) -> None:
    """Run an elastic MPI program. Inside a Slurm job it starts on that job's nodes.

    On SIGTERM it saves its state at its next safe point; the same command continues from there.
    """
    from qloom.cli import arguments
    from qloom.mpi.launch import require_programs
    from qloom.mpi.nodes import LocalNodes, Nodes
    from qloom.mpi.root import ElasticPlan, Root
    from qloom.mpi.slurmnodes import SlurmNodes
    from qloom.slurm.tags import own_tag, reap

    if world not in ("local", "slurm"):
        raise InputError(f"MPI programs do not run in the world {world!r}", hint="local or slurm")
    require_programs("an elastic program", "mpiexec" if world == "local" else "srun", mpi4py=True)
    least, most = _range(nodes)
    own = int(os.environ.get("SLURM_JOB_NUM_NODES", "0")) if world == "slurm" else 0
    start = start or max(least, min(own, most))
    plan = ElasticPlan(tuple(program), directory, least, most, start, ranks_per_node, patience_s)
    held: Nodes = LocalNodes()
    if world == "slurm":
        table = [f"arguments={text}" if text.startswith("-") else text for text in slurm or ()]
        asked = arguments.make_site(site, None, [], None, table).slurm
        asked = replace(asked, time_limit=time_limit or asked.time_limit or "60")
        reap()
        held = SlurmNodes(asked, own_tag("elastic"), Path(program[0]).stem, ranks_per_node)
    if not Root(plan, held).run():
        print(f"stopped; its state is in {directory}: run the same command to continue")
        raise typer.Exit(STOPPED)


@app.command()
def resize(
    nodes: Annotated[int, typer.Argument(help="Nodes to continue on.")],
    directory: Annotated[Path, DIRECTORY] = Path("elastic"),
) -> None:
    """Ask a running elastic program to resize to this many nodes. It does so at its next safe point."""
    from qloom.mpi.root import ask_to_resize

    ask_to_resize(directory, nodes)
