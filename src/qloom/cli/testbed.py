"""`qloom testbed`: a real Slurm on this machine, in a private directory."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from qloom.errors import QloomError

if TYPE_CHECKING:
    from qloom.testbed import Testbed

app = typer.Typer(
    help="A real Slurm of your own on this machine. No root, nothing in /etc, nothing left behind.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="Its name: several can run side by side.")]
Directory = Annotated[Path | None, typer.Option(help="Where it lives, instead of the default private directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the essential.")]


class Interrupted(QloomError):
    """Ctrl-C while a testbed was coming up."""

    exit_code = 130


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.add_typer(app, name="testbed")


@app.command()
def up(
    name: Name = "default",
    nodes: Annotated[int, typer.Option(help="Nodes of the partition compute: c1, c2, ...")] = 3,
    vqpus: Annotated[int, typer.Option(help="vQPUs of the node q1, in the partition quantum.")] = 8,
    cpus: Annotated[int, typer.Option(help="CPUs that a compute node claims.")] = 4,
    site: Annotated[str, typer.Option(help="Whose policies: open, or strict (a computing centre's).")] = "open",
    bf_interval: Annotated[
        int, typer.Option(help="Seconds between backfill cycles; 0: 1 if open, 30 if strict.")
    ] = 0,
    no_accounting: Annotated[bool, typer.Option("--no-accounting", help="Without slurmdbd and MariaDB.")] = False,
    no_broker: Annotated[bool, typer.Option("--no-broker", help="Without a QPU broker beside it.")] = False,
    device: Annotated[
        str,
        typer.Option(help="What its broker has: annealing (QUBOs), qaoa (circuits and QUBOs) or pulser (sequences)."),
    ] = "annealing",
    slurm_prefix: Annotated[
        Path | None,
        typer.Option(
            envvar="QLOOM_SLURM_PREFIX",
            help="Run the Slurm in this directory (bin, sbin, lib) instead of the machine's.",
        ),
    ] = None,
    directory: Directory = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start one, and wait until all its nodes are idle."""
    from qloom.broker.problems import require_extra
    from qloom.testbed import Testbed, TestbedSettings

    if not no_broker:
        require_extra(", or qloom testbed up --no-broker")
    settings = TestbedSettings(
        nodes, vqpus, cpus, not no_accounting, not no_broker, site, device, bf_interval, str(slurm_prefix or "")
    )
    begin_s = time.monotonic()
    console = Console(stderr=True, highlight=False)
    try:
        with console.status("starting") as spinner:
            testbed = Testbed.up(
                name, settings, directory=directory, say=lambda step: spinner.update(f"starting: {step}")
            )
    except KeyboardInterrupt:
        raise Interrupted("interrupted: nothing was left") from None
    if as_json:
        print(json.dumps({"directory": str(testbed.directory), "environment": testbed.environment}))
    elif not quiet:
        took_s = time.monotonic() - begin_s
        shape = f"partition compute with {nodes} nodes, partition quantum with {vqpus} vQPUs"
        console.print(f"ready after {took_s:.1f} s: {shape}", markup=False, soft_wrap=True)
        console.print(f'use it: eval "$(qloom testbed env {_words(name, directory)})"', markup=False, soft_wrap=True)


@app.command()
def down(name: Name = "default", directory: Directory = None, quiet: Quiet = False) -> None:
    """End one and remove all that it left, also if it has crashed."""
    testbed = _find(name, directory)
    pointing = [
        variable
        for variable, value in testbed.environment.items()
        if variable != "PATH" and os.environ.get(variable) == value
    ]
    testbed.down()
    if not quiet:
        print("down")
    if pointing and not quiet:
        Console(stderr=True, highlight=False).print(f"this shell still points at it: unset {' '.join(pointing)}")


@app.command()
def env(name: Name = "default", directory: Directory = None, as_json: Json = False) -> None:
    """Print variables that point Slurm and qloom at it, for eval."""
    testbed = _find(name, directory)
    testbed.status()  # raises if it has crashed
    environment = testbed.environment
    if as_json:
        print(json.dumps(environment))
    else:
        for variable, value in environment.items():
            print(f"export {variable}={shlex.quote(value)}")


@app.command()
def status(name: Name = "default", directory: Directory = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show the state of its daemons and nodes. Exit code 1 if one is down, with the last lines of its log."""
    from qloom.cli.tables import table

    testbed = _find(name, directory)
    daemons, nodes = testbed.status(), testbed.nodes()
    well = all(row["up"] for row in daemons) and all(row["up"] for row in nodes)
    if as_json:
        print(json.dumps({"directory": str(testbed.directory), "daemons": daemons, "nodes": nodes}))
    elif quiet:
        print("up" if well else "down: " + ", ".join(row["name"] for row in daemons + nodes if not row["up"]))
    else:
        console = Console()
        shown = [{"daemon": row["name"], "state": "up" if row["up"] else "down", **row} for row in daemons]
        console.print(table(("daemon", "state", "pid", "why"), shown))
        console.print(table(("node", "state", "why"), [{"node": row["name"], **row} for row in nodes]))
        for row in daemons:
            _print_log(row)
    if not well:
        raise typer.Exit(1)


@app.command()
def measure(
    name: Name = "default",
    directory: Directory = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file, for --overheads.")] = None,
) -> None:
    """Measure the overheads of an idle one, for virtual time."""
    from qloom.cli.running import write_overheads
    from qloom.site import Site

    testbed = _find(name, directory)
    os.environ.update(testbed.environment)
    write_overheads("slurm", Site(nodes=testbed.settings.nodes), output)


def _print_log(row: dict[str, Any]) -> None:
    for line in row["log"]:
        print(f"{row['name']}: {line}")


def _find(name: str, directory: Path | None) -> Testbed:
    from qloom.testbed import Testbed

    return Testbed.find(name, directory)


def _words(name: str, directory: Path | None) -> str:
    return f"--directory {shlex.quote(str(directory))}" if directory else name
