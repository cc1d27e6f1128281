"""Commands for Slurm: `submit` for users, `slurm` for the administrators of a site with QPUs and for leftovers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from qloom.cli import arguments
from qloom.cli.tables import Json, Quiet, table
from qloom.errors import InputError

app = typer.Typer(help="QPUs and hybrid jobs on Slurm.", no_args_is_help=True, rich_markup_mode=None)


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.command()(submit)
    parent.add_typer(app, name="slurm")


def submit(
    program: arguments.ProgramArgument,
    strategy: arguments.Strategy = "offload",
    driver: Annotated[
        str | None,
        typer.Option(
            help="in-job: on the first node. beside: on a separate core. "
            "chain: none, each phase's job submits the next. "
            "[default: chain for strategies that hold nothing between phases, else in-job]"
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="The most nodes that the job may hold. [default: 3]")] = None,
    settings: arguments.Set = [],  # noqa: B006  typer makes a new one for each call
    option: arguments.Option = [],  # noqa: B006
    qpu: arguments.Qpu = [],  # noqa: B006
    broker: arguments.Broker = None,
    seed: arguments.Seed = 0,
    site: arguments.SiteFile = None,
    slurm: arguments.Slurm = [],  # noqa: B006
    on_recalibration: arguments.OnRecalibration = "warn",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run until it ends.")] = False,
    notify: arguments.Notify = None,
    as_json: Json = False,
) -> None:
    """Submit a run to Slurm, driver and all, and return. No process stays here, except with --wait."""
    from qloom.programs.load import load_program
    from qloom.runs.notify import require_target
    from qloom.runs.plan import Plan
    from qloom.runs.submit import script, usual_driver
    from qloom.runs.submit import submit as submit_run

    if notify is not None:
        require_target(notify)
    loaded = load_program(program)
    plan = Plan(
        loaded,
        arguments.parse_settings(settings, loaded),
        strategy=strategy,
        options=arguments.parse_options(option),
        world="slurm",
        site=arguments.behind(broker, arguments.make_site(site, nodes, qpu, None, slurm)),
        seed=seed,
        on_recalibration=on_recalibration,
    )
    if strategy == "auto":
        from qloom.cli.advise import choose

        plan = choose(plan, shown=not as_json)
    driver = driver or usual_driver(plan)
    if dry_run:
        print(script(plan, driver), end="")
        return
    submitted = submit_run(plan, driver)
    console = Console(stderr=True, highlight=False)
    if as_json:
        print(json.dumps({"run": submitted.run, "slurm_job": submitted.job}), flush=True)
    else:
        print(submitted.run, flush=True)
        message = f"submitted as Slurm job {submitted.job}; its state: qloom watch {submitted.run}"
        console.print(message, soft_wrap=True)
    if wait:
        _follow(submitted.run, console, notify)


def _follow(run: str, console: Console, target: str | None) -> None:
    from qloom.cli.progress import watch_run
    from qloom.cli.watch import exit_as
    from qloom.journal.home import find_run
    from qloom.runs.notify import notify

    live = watch_run(find_run(run), console)
    if target is not None:
        notify(target, live.directory)
    exit_as(live)


@app.command()
def config(
    qpu: Annotated[list[str], typer.Option("--qpu", help="NAME:SHARES or NAME:SHARES:NODE. Repeatable.")] = [],  # noqa: B006
    licences: Annotated[bool, typer.Option("--licences", help="As licences, not as gres of a node.")] = False,
    broker: Annotated[
        str | None, typer.Option(help="Where jobs find the broker. [default: on the first QPU's node]")
    ] = None,
    partition: Annotated[str, typer.Option(help="The partition of the QPUs' nodes.")] = "quantum",
    etc: Annotated[str, typer.Option(help="The directory of Slurm's configuration.")] = "/etc/slurm",
    munge_socket: Annotated[str | None, typer.Option(help="Munge's socket, if it is not the usual one.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new directory for the files.")] = None,
    as_json: Json = False,
) -> None:
    """Print the lines that give QPUs to Slurm. For slurm.conf, gres.conf, TaskProlog, and the broker's hook."""
    from qloom.slurm.site_config import parse_qpus, site_files

    files = site_files(
        parse_qpus(qpu), broker=broker, partition=partition, licences=licences, etc=etc, munge_socket=munge_socket
    )
    if output is not None:
        _write(output, files)
    if as_json:
        print(json.dumps(files))
    elif output is None:
        print("\n".join(f"### {name}\n{text}" for name, text in files.items()), end="")


def _write(directory: Path, files: dict[str, str]) -> None:
    try:
        directory.mkdir(parents=True)
        for name, text in files.items():
            (directory / name).write_text(text)
            if text.startswith("#!"):
                (directory / name).chmod(0o755)
    except OSError as error:
        raise InputError(f"cannot make {directory}: {error.strerror}", hint="name a new directory") from None


@app.command("device-state")
def device_state(
    device: Annotated[str, typer.Argument(envvar="QLOOM_DEVICE", help="The name of a QPU.")],
    state: Annotated[str, typer.Argument(envvar="QLOOM_DEVICE_STATE", help="idle, busy, drained, calibration, ...")],
    node: Annotated[str | None, typer.Option(help="Its node. [default: the one that has its gres]")] = None,
    licence: Annotated[
        bool, typer.Option("--licence", help="Reserve its licences instead of draining a node.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Report the state of a QPU to Slurm. While it is away its node is drained, or its licences are reserved."""
    from qloom.slurm.device_state import set_device_state

    done = set_device_state(device, state, node=node, licence=licence)
    if not quiet:
        print(done)


@app.command()
def reap(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show them.")] = False,
    as_json: Json = False,
) -> None:
    """Release allocations that your dead drivers have left. Running or pending ones; live drivers keep theirs."""
    from qloom.slurm import tags
    from qloom.slurm.facts import require_programs

    require_programs()
    rows = tags.leaked() if dry_run else tags.reap()
    found = [{"job": row.id, "name": row.name, "state": row.state.name, "nodes": ",".join(row.nodes)} for row in rows]
    if as_json:
        print(json.dumps(found))
    elif not found:
        print("no allocation of yours has lost its driver")
    else:
        Console().print("without a driver:" if dry_run else "released:")
        Console().print(table(("job", "name", "state", "nodes"), found))
