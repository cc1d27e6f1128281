"""`qloom export`: programs for other engines, and runs as research objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qloom.cli import step, values

if TYPE_CHECKING:
    from qloom.export import Places

app = typer.Typer(
    help="Write a program for another engine, or a run as an RO-Crate.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Program = Annotated[str, typer.Argument(help="A job file (.toml), or clustering.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="A new folder.")]
Set = Annotated[list[str], typer.Option("--set", help="A parameter of the program: name=value. Repeatable.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
SiteKind = Annotated[str | None, typer.Option("--site", help="slurm, or local: this machine. [default: local]")]
Quantum = Annotated[
    str | None,
    typer.Option(help="Quantum steps: partition (Slurm, with gres/qpu), broker, or here (emulated on a node)."),
]
Broker = Annotated[str | None, typer.Option(help="The broker's address. [default: $QLOOM_BROKER where it runs]")]
Device = Annotated[str | None, typer.Option(help="The broker's device to use.")]
PlacesFile = Annotated[Path | None, typer.Option("--places", help="Locations and bindings of a site (TOML).")]
Stock = Annotated[bool, typer.Option("--stock", help="Only StreamFlow's own connectors.")]
OrClassical = Annotated[
    bool, typer.Option("--or-classical", help="Clustering: a node will do while the device is away.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the folder.")]


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file, and the steps that exports call."""
    parent.add_typer(app, name="export")
    parent.add_typer(step.app, name="step")


@app.command()
def cwl(
    program: Program,
    output: Output,
    settings: Set = [],  # noqa: B006
    seed: Seed = 0,
    site: SiteKind = None,
    quantum: Quantum = None,
    broker: Broker = None,
    device: Device = None,
    places: PlacesFile = None,
    stock: Stock = False,
    or_classical: OrClassical = False,
    quiet: Quiet = False,
) -> None:
    """Write a program as a CWL workflow with a streamflow.yml. For StreamFlow, cwltool and other CWL engines."""
    from qloom.export import flow_of, write_cwl

    where = _places(places, site=site, quantum=quantum, broker=broker, device=device, stock=stock or None)
    write_cwl(output, flow_of(program, values.parse_settings(settings), seed, or_classical=or_classical), where)
    _tell(output, quiet)


@app.command()
def sh(
    program: Program,
    output: Output,
    settings: Set = [],  # noqa: B006
    seed: Seed = 0,
    quantum: Quantum = None,
    broker: Broker = None,
    places: PlacesFile = None,
    quiet: Quiet = False,
) -> None:
    """Write a program as plain sbatch --dependency scripts. For sites without a workflow engine."""
    from qloom.export import flow_of, write_shell

    where = _places(places, site="slurm", quantum=quantum, broker=broker)
    write_shell(output, flow_of(program, values.parse_settings(settings), seed), where)
    _tell(output, quiet)


@app.command()
def crate(
    run: Annotated[str, typer.Argument(help="The id of a run, the start of one, a path, or last.")] = "last",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new folder. [default: crate-RUN]")] = None,
    quiet: Quiet = False,
) -> None:
    """Write a run as a Workflow Run RO-Crate. Inputs, outputs, actions with their times; of any strategy."""
    from qloom.export.crate import write_crate

    _tell(write_crate(run, output), quiet, "ro-crate-metadata.json describes it")


def _places(file: Path | None, **said: Any) -> Places:
    from qloom.export import Places, read_places

    given = {name: value for name, value in said.items() if value is not None}
    return Places(**given) if file is None else read_places(file, **given)


def _tell(output: Path, quiet: bool, more: str = "README.md says how to run it") -> None:
    print(output if quiet else f"{output}: {more}")
