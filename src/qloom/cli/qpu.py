"""`qloom qpu`: the QPUs of a broker, and your tasks there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from qloom.cli import stall
from qloom.cli.tables import Json, Quiet, table
from qloom.errors import InputError, PayloadError

if TYPE_CHECKING:
    from qloom.broker.client.sync import SyncBrokerClient

app = typer.Typer(
    help="Look at the QPUs of a broker and use them. $QLOOM_BROKER says where it is.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TaskArgument = Annotated[str, typer.Argument(help="The id of a task.")]

POLL_S = 30.0  # how often a command that waits for a result says what for
KINDS = {".qasm": "openqasm3", ".json": "qubo"}


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.add_typer(app, name="qpu")


def connected() -> SyncBrokerClient:
    """The broker of this environment; a command does not wait long for one that is not there."""
    from qloom.broker.client.sync import SyncBrokerClient

    return SyncBrokerClient(retry_s=2.0)


@app.command("list")
def list_devices(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the QPUs, their states, and how long a task would wait."""
    with connected() as broker:
        rows = broker.devices()
    if as_json:
        print(json.dumps(rows))
    elif quiet:
        for row in rows:
            print(row["name"])
    else:
        columns = ("name", "technology", "qubits", "payloads", "state", "shares", "wait_s", "promised_s")
        shown = [
            {
                **row,
                "state": "drained" if row["drained"] else row["state"],
                "wait_s": row["expected_wait_s"],
                "promised_s": row["promised_wait_s"],
            }
            for row in rows
        ]
        Console().print(table(columns, shown))


@app.command()
def status(
    name: Annotated[str, typer.Argument(help="A QPU or the id of a task.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the state of a task or a QPU."""
    from qloom.broker.problems import NotFound

    with connected() as broker:
        try:
            view = broker.status(name)
        except NotFound:
            try:
                view = broker.device(name)
            except NotFound:
                raise NotFound(f"no task or QPU is called {name}", hint="qloom qpu list, qloom qpu queue") from None
    if as_json:
        print(json.dumps(view))
    elif quiet:
        print(view["state"])
    else:
        for key, value in view.items():
            if value is not None and value != "":
                print(f"{key:16} {', '.join(value) if isinstance(value, list) else value}")


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A QUBO (.json), OpenQASM 3 (.qasm), or another kind with --kind.")],
    device: Annotated[
        list[str],
        typer.Option(
            help="A QPU; the least busy one unless given. Given several times, or as '*' for any that "
            "fits, the task goes to another while one is away."
        ),
    ] = [],  # noqa: B006
    kind: Annotated[str | None, typer.Option(help="qubo, openqasm3 or pulser.")] = None,
    shots: Annotated[int, typer.Option(help="How often it is run.")] = 100,
    project: Annotated[str | None, typer.Option(help="The project to charge.")] = None,
    session: Annotated[str | None, typer.Option(help="A session to run in.")] = None,
    priority: Annotated[
        int | None, typer.Option(help="Under the policy 'priority'; as high as the project may.", min=-1000, max=1000)
    ] = None,
    max_wait: Annotated[
        float | None, typer.Option(help="Seconds that it may wait; refused if it may take longer.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Submit a payload. Prints the task's id, its place in the queue and the expected wait."""
    kind = kind or KINDS.get(file.suffix)
    if kind is None:
        raise InputError(f"{file}: what kind of payload is this?", hint="--kind qubo, openqasm3 or pulser")
    form = {"kind": kind, "body": _read(file, kind), "shots": shots, "name": file.stem[:200] or "quantum"}
    with connected() as broker:
        one = len(device) == 1 and device[0] != "*"
        places = {"device": device[0]} if one else {"devices": device or None}
        options = {**places, "project": project, "session": session, "priority": priority, "max_wait_s": max_wait}
        view = broker.submit(form, **options)
        if wait:
            broker.wait(view["id"], poll_s=min(stall.quiet_s() or POLL_S, POLL_S), while_waiting=_say_place)
            print(json.dumps(broker.result(view["id"])))
            return
        view = broker.status(view["id"])
    if as_json:
        print(json.dumps(view))
    elif quiet:
        print(view["id"])
    else:
        print(f"{view['id']} on {view['device']}: {_place(view)}")


def _say_place(view: dict[str, Any]) -> None:
    print(f"qloom: {view['id']} on {view['device']}: {_place(view)}", file=sys.stderr, flush=True)


def _place(view: dict[str, Any]) -> str:
    if view["state"] != "queued":
        return str(view["state"])
    wait_s = view["expected_wait_s"]
    when = "the QPU is not available now" if wait_s is None else f"about {wait_s:.1f} s"
    return f"{view['position']} before it, {when}"


def _read(file: Path, kind: str) -> Any:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"cannot read {file}: {reason}") from None
    if kind == "openqasm3":
        return text
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"{file} is not JSON: {error}") from None
    if kind != "qubo" or not (isinstance(body, dict) and isinstance(body.get("linear", {}), dict)):
        return body  # as devices take it; tables are one of the forms of job files
    from qloom.jobfile.files import read_qubo

    return read_qubo(str(file), text.encode(), shots=1, seconds=None, device=None).body


@app.command()
def queue(as_json: Json = False, quiet: Quiet = False) -> None:
    """How much waits at each QPU, and where your own tasks are."""
    with connected() as broker:
        view = broker.queue()
    if as_json:
        print(json.dumps(view))
    elif quiet:
        for task in view["mine"]:
            print(task["id"])
    else:
        columns = ("device", "queued", "on_device", "sessions_open", "sessions_waiting")
        Console().print(table(columns, view["devices"]))
        if view["mine"]:
            mine = [{**task, "wait_s": task["expected_wait_s"]} for task in view["mine"]]
            Console().print(table(("id", "name", "device", "state", "position", "wait_s"), mine))


@app.command()
def cancel(task: TaskArgument, as_json: Json = False, quiet: Quiet = False) -> None:
    """Cancel a task."""
    with connected() as broker:
        view = broker.cancel(task)
    if as_json:
        print(json.dumps(view))
    elif not quiet:
        print(
            f"{task} is {view['state']}" if view["state"] == "cancelled" else f"{task} is {view['state']}, cancelling"
        )
