"""`qloom step`: single steps of exported programs, with files in the current folder; workflow engines call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Single steps of exported programs. They read and write files in the current folder.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Iteration = Annotated[int, typer.Option(help="The number of the iteration, from 1.", min=1)]
HERE = Path()


@app.command()
def prepare() -> None:
    """Clustering: what all iterations share, to common.npz."""
    from qloom.export import steps

    steps.prepare(HERE)


@app.command()
def cluster(
    method: Annotated[str, typer.Argument(help="One of the methods in settings.json.")], iteration: Iteration
) -> None:
    """Clustering: the labels of one method, to METHOD.npy."""
    from qloom.export import steps

    steps.cluster(HERE, method, iteration)


@app.command()
def qubo(iteration: Iteration) -> None:
    """Clustering: the QUBO of an iteration, to qubo.json."""
    from qloom.export import steps

    steps.qubo(HERE, iteration)


@app.command()
def score(iteration: Iteration) -> None:
    """Clustering: labels and score from answer.json; the best so far stays in labels.csv and summary.json."""
    from qloom.export import steps

    steps.score(HERE, iteration)


@app.command()
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


@app.command()
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
    from qloom.export.jobfiles import task_of
    from qloom.export.records import perform_command
    from qloom.model import Payload

    task = task_of(words, name, capture)
    payload = Payload("command", task, seconds=seconds, device=device, name=name) if quantum else None
    raise typer.Exit(perform_command(task, output, payload))


@app.command()
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
    from qloom.cli.values import parse_value
    from qloom.export.judge import proceeds

    given: dict[str, Any] = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    limits = {name: value for name, value in given.items() if value is not None}
    if equals is not None:
        limits["equals"] = parse_value(equals)
    proceed = proceeds(HERE, iteration, max, file, key, limits)
    told = {"proceed": proceed, "next": iteration + 1, "iteration_out": iteration}
    Path("cwl.output.json").write_text(json.dumps(told))
    print(str(proceed).lower())
