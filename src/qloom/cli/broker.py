"""`qloom broker`: run the service in front of the QPUs, and look after it."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from qloom.cli import tokens
from qloom.cli.tables import Json, Quiet, table
from qloom.errors import QloomError

if TYPE_CHECKING:
    from qloom.broker.config import BrokerConfig

app = typer.Typer(help="Run a QPU broker, and look after it.", no_args_is_help=True, rich_markup_mode=None)

ConfigFile = Annotated[Path | None, typer.Option("--config", help="A config file: broker.toml.")]
OneDevice = Annotated[str | None, typer.Option("--device", help="Only those of one QPU.")]
TaskArgument = Annotated[str, typer.Argument(help="The id of a task.")]
DeviceArgument = Annotated[str, typer.Argument(help="The name of a QPU.")]


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file, and those for tokens."""
    tokens.add_to(app)
    parent.add_typer(app, name="broker")


@app.command()
def serve(config: ConfigFile = None, quiet: Quiet = False) -> None:
    """Serve until SIGTERM or Ctrl-C. Accepted tasks survive a crash; SIGHUP reads the config again."""
    from qloom.broker.config import read_config
    from qloom.broker.problems import require_extra

    require_extra()
    from qloom.broker.serve import serve as serve_broker

    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    serve_broker(read_config(config), read=lambda: read_config(config))


@app.command()
def init(config: ConfigFile = None, quiet: Quiet = False) -> None:
    """Make an empty store, if one was lost and there is no backup. A first start makes its own."""
    from qloom.broker.config import read_config
    from qloom.broker.store.file import make_store

    settings = read_config(config)
    make_store(settings.store_path)
    if not quiet:
        print(f"made an empty store {settings.store_path}")


@app.command()
def drain(device: DeviceArgument, as_json: Json = False, quiet: Quiet = False) -> None:
    """Start nothing new on a QPU. Running tasks finish, queued ones stay queued."""
    _drain(device, True, as_json, quiet)


@app.command()
def resume(device: DeviceArgument, as_json: Json = False, quiet: Quiet = False) -> None:
    """Start tasks on a drained QPU again."""
    _drain(device, False, as_json, quiet)


def _drain(device: str, drained: bool, as_json: bool, quiet: bool) -> None:
    from qloom.cli.qpu import connected

    with connected() as broker:
        view = broker.drain(device, drained)
    if as_json:
        print(json.dumps(view))
    elif not quiet:
        print(f"{device} is {'drained' if drained else view['state']}")


@app.command()
def shares(
    device: DeviceArgument,
    number: Annotated[int, typer.Argument(help="How many vQPUs it offers from now on.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Offer another number of vQPUs. More at once, fewer as sessions end."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        view = broker.set_shares(device, number)
    if as_json:
        print(json.dumps(view))
    elif not quiet:
        promised = view["promised_wait_s"]
        print(f"{device} offers {number} shares; promised wait: {'none' if promised is None else f'{promised:g} s'}")


@app.command()
def tasks(device: OneDevice = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """List the tasks that are queued or on a QPU, with their owners."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        rows = broker.tasks(device)
    shown = [{**row, "state": "held" if row["held"] else row["state"]} for row in rows]
    _print_rows(("id", "user", "project", "device", "session", "state", "attempts"), rows, shown, as_json, quiet)


@app.command()
def sessions(device: OneDevice = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """List the sessions that wait or are open, with their owners."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        rows = broker.sessions(device)
    _print_rows(("id", "user", "project", "device", "hold", "state", "tasks"), rows, rows, as_json, quiet)


@app.command()
def evict(
    id: Annotated[str, typer.Argument(help="The id of a session or a task.")],
    reason: Annotated[str, typer.Option(help="The reason that its owner is given.")] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Close any user's session, or cancel any user's task. Its owner is given the reason."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        view = broker.evict(id, reason)
    _print_state(id, view, as_json, quiet)


@app.command()
def hold(task: TaskArgument, as_json: Json = False, quiet: Quiet = False) -> None:
    """Keep a queued task from being started, until it is released."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        view = broker.hold(task)
    _print_state(task, view, as_json, quiet)


@app.command()
def release(task: TaskArgument, as_json: Json = False, quiet: Quiet = False) -> None:
    """Release a held task. It joins the end of its queue."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        view = broker.release(task)
    _print_state(task, view, as_json, quiet)


@app.command()
def requeue(task: TaskArgument, as_json: Json = False, quiet: Quiet = False) -> None:
    """Take a task back from its QPU and queue it again."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        view = broker.requeue(task)
    if not as_json and not quiet and view["state"] != "queued":
        print(f"{task} is {view['state']}, being requeued")
    else:
        _print_state(task, view, as_json, quiet)


def _print_state(id: str, view: dict[str, Any], as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps(view))
    elif not quiet:
        print(f"{id} is {'held' if view.get('held') else view['state']}")


def _print_rows(
    columns: tuple[str, ...], rows: list[dict[str, Any]], shown: list[dict[str, Any]], as_json: bool, quiet: bool
) -> None:
    if as_json:
        print(json.dumps(rows))
    elif quiet:
        for row in rows:
            print(row["id"])
    else:
        Console().print(table(columns, shown))


@app.command()
def reconcile(
    device: Annotated[str | None, typer.Argument(help="One QPU only.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List where the vendors' accounting and ours differ."""
    from qloom.cli.qpu import connected

    with connected() as broker:
        rows = broker.reconcile(device)
    if as_json:
        print(json.dumps(rows))
    elif quiet:
        for row in rows:
            print(row["task"] or row["device_id"])
    elif not rows:
        print("the books agree")
    else:
        columns = ("device", "task", "device_id", "problem", "ours_s", "vendor_s")
        Console().print(table(columns, rows))


@app.command()
def check(config: ConfigFile = None, as_json: Json = False) -> None:
    """Check config, devices, shares and store. The broker may be running."""
    from qloom.broker.config import devices_of, read_config
    from qloom.broker.doors.opening import open_doors
    from qloom.broker.store.file import is_gone
    from qloom.broker.store.schema import integrity
    from qloom.devices.factory import make_device

    settings = read_config(config)
    described = [device.description for device in devices_of(settings, make_device)]
    open_doors(settings.doors, described)
    shares = {each.name: settings.spec(each).shares for each in described}
    gone = is_gone(settings.store_path)
    problems = ["it is gone, and one was made here before"] if gone else []
    if settings.store_path.exists() and not gone:
        problems = integrity(settings.store_path)
    differences, silence = _compared_with_slurm(settings, shares)
    if as_json:
        print(json.dumps({"store": str(settings.store_path), "problems": [*problems, *differences]}))
        if problems or differences:
            raise typer.Exit(1)
    elif problems:
        raise QloomError(
            f"the store {settings.store_path} is damaged: {problems[0]}", hint="restore it from a backup"
        )
    elif differences:
        raise QloomError("; ".join(differences), hint="shares in [promises.NAME], or Gres= of its node in slurm.conf")
    else:
        state = "sound" if settings.store_path.exists() else "not there yet"
        print(f"the config is valid, the store {settings.store_path} is {state}")
        if silence is not None:
            print(f"shares were not compared with Slurm's: {silence}")


def _compared_with_slurm(settings: BrokerConfig, shares: dict[str, int]) -> tuple[list[str], str | None]:
    """Where shares differ from Slurm's, if sessions are for Slurm jobs; or the reason why Slurm did not answer."""
    from qloom.broker.problems import Unavailable
    from qloom.broker.slurm import SlurmSite

    if not (settings.slurm.require_job or settings.slurm.require_job_for_tasks):
        return [], None
    try:
        return asyncio.run(SlurmSite(settings.slurm.gres, settings.slurm.timeout_s).share_differences(shares)), None
    except Unavailable as error:
        return [], error.message
