"""`qloom export`: programs for other engines, and runs as research objects; `qloom step`: the steps that these call.

Steps read and write files in the current folder; workflow engines call them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qloom.cli import arguments

if TYPE_CHECKING:
    from qloom.export import Places

app = typer.Typer(
    help="Write a program for another engine, or a run as an RO-Crate.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

steps_app = typer.Typer(
    help="Single steps of exported programs. They read and write files in the current folder.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Program = Annotated[str, typer.Argument(help="A job file (.toml), or clustering.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="A new folder.")]
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
Iteration = Annotated[int, typer.Option(help="The number of the iteration, from 1.", min=1)]
HERE = Path()


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file, and the steps that exports call."""
    parent.add_typer(app, name="export")
    parent.add_typer(steps_app, name="step")


@app.command()
def cwl(
    program: Program,
    output: Output,
    settings: arguments.Set = [],  # noqa: B006
    seed: arguments.Seed = 0,
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
    write_cwl(output, flow_of(program, arguments.parse_settings(settings), seed, or_classical=or_classical), where)
    _print_folder(output, quiet)


@app.command()
def sh(
    program: Program,
    output: Output,
    settings: arguments.Set = [],  # noqa: B006
    seed: arguments.Seed = 0,
    quantum: Quantum = None,
    broker: Broker = None,
    places: PlacesFile = None,
    quiet: Quiet = False,
) -> None:
    """Write a program as plain sbatch --dependency scripts. For sites without a workflow engine."""
    from qloom.export import flow_of, write_shell

    where = _places(places, site="slurm", quantum=quantum, broker=broker)
    write_shell(output, flow_of(program, arguments.parse_settings(settings), seed), where)
    _print_folder(output, quiet)


@app.command()
def crate(
    run: Annotated[str, typer.Argument(help="The id of a run, the start of one, a path, or last.")] = "last",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new folder. [default: crate-RUN]")] = None,
    quiet: Quiet = False,
) -> None:
    """Write a run as a Workflow Run RO-Crate. Inputs, outputs, actions with their times; of any strategy."""
    from qloom.export.crate import write_crate

    _print_folder(write_crate(run, output), quiet, "ro-crate-metadata.json describes it")


def _places(file: Path | None, **said: Any) -> Places:
    from qloom.export import Places, read_places

    given = {name: value for name, value in said.items() if value is not None}
    return Places(**given) if file is None else read_places(file, **given)


def _print_folder(output: Path, quiet: bool, more: str = "README.md says how to run it") -> None:
    print(output if quiet else f"{output}: {more}")


# The steps that exports call.


@steps_app.command()
def prepare() -> None:
    """Clustering: what all iterations share, to common.npz."""
    from qloom.export import steps

    steps.prepare(HERE)


@steps_app.command()
def cluster(
    method: Annotated[str, typer.Argument(help="One of the methods in settings.json.")], iteration: Iteration
) -> None:
    """Clustering: the labels of one method, to METHOD.npy."""
    from qloom.export import steps

    steps.cluster(HERE, method, iteration)


@steps_app.command()
def qubo(iteration: Iteration) -> None:
    """Clustering: the QUBO of an iteration, to qubo.json."""
    from qloom.export import steps

    steps.qubo(HERE, iteration)


@steps_app.command()
def score(iteration: Iteration) -> None:
    """Clustering: labels and score from answer.json; the best so far stays in labels.csv and summary.json."""
    from qloom.export import steps

    steps.score(HERE, iteration)


@steps_app.command()
def quantum(
    payload: Annotated[Path, typer.Argument(help="A QUBO, or a payload as brokers take it.")],
    result: Annotated[Path, typer.Argument(help="The answer goes here: the best sample and its energy.")],
    instead: Annotated[
        list[str] | None, typer.Argument(help="After --: a command that stands in for the device.")
    ] = None,
    shots: Annotated[int, typer.Option(help="How often it is run.", min=1)] = 100,
    seconds: Annotated[float | None, typer.Option(help="How long an emulated device takes.")] = None,
    device: Annotated[str | None, typer.Option(help="The broker's device; the least busy unless given.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the emulation.")] = 0,
    asked: Annotated[Path | None, typer.Option(help="A file that counts payloads, so that answers differ.")] = None,
    send: Annotated[bool, typer.Option("--send", help="Send it to the broker: $QLOOM_BROKER.")] = False,
) -> None:
    """A payload: sent to a QPU by a connector or with --send; otherwise emulated here, or the stand-in is run."""
    from qloom.export.solve import run_quantum_step, send_quantum_step

    if send:
        print(f"answered by {send_quantum_step(payload, result, shots, seconds, device, instead or [])}")
    else:
        print(f"answered by {run_quantum_step(payload, result, shots, seconds, instead or [], seed, device, asked)}")


@steps_app.command()
def command(
    words: Annotated[list[str], typer.Argument(help="After --: the command.")],
    name: Annotated[str, typer.Option(help="The task's name.")] = "command",
    output: Annotated[list[str], typer.Option(help="A file that it makes. Repeatable.")] = [],  # noqa: B006
    capture: Annotated[list[str], typer.Option(help="One that the program reads. Repeatable.")] = [],  # noqa: B006
    quantum: Annotated[bool, typer.Option("--quantum", help="It talks to the device itself.")] = False,
    seconds: Annotated[float | None, typer.Option(help="Of a quantum one: its expected time.")] = None,
    device: Annotated[str | None, typer.Option(help="Of a quantum one: the device it is meant for.")] = None,
) -> None:
    """A job file's command as it is; if an engine of qloom's looks for it, what it made is noted."""
    from qloom.export.programs import task_of
    from qloom.export.records import perform_command
    from qloom.model import Payload

    task = task_of(words, name, capture)
    payload = Payload("command", task, seconds=seconds, device=device, name=name) if quantum else None
    raise typer.Exit(perform_command(task, output, payload))


@steps_app.command()
def judge(
    iteration: Iteration,
    max: Annotated[int, typer.Option(help="The last iteration.")],
    file: Annotated[str | None, typer.Option(help="The JSON file to look at.")] = None,
    key: Annotated[str, typer.Option(help="Where the value is; dots lead into nested tables.")] = "",
    at_least: Annotated[float | None, typer.Option(help="Stop when the value is this or more.")] = None,
    at_most: Annotated[float | None, typer.Option(help="Stop when the value is this or less.")] = None,
    above: Annotated[float | None, typer.Option(help="Stop when the value is more than this.")] = None,
    below: Annotated[float | None, typer.Option(help="Stop when the value is less than this.")] = None,
    equals: Annotated[str | None, typer.Option(help="Stop when the value is this.")] = None,
) -> None:
    """Whether there is another iteration: prints true or false, and leaves it in cwl.output.json for CWL."""
    from qloom.export.solve import proceeds

    given: dict[str, Any] = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    limits = {name: value for name, value in given.items() if value is not None}
    if equals is not None:
        limits["equals"] = arguments.parse_value(equals)
    proceed = proceeds(HERE, iteration, max, file, key, limits)
    outputs = {"proceed": proceed, "next": iteration + 1, "iteration_out": iteration}
    Path("cwl.output.json").write_text(json.dumps(outputs))
    print(str(proceed).lower())
