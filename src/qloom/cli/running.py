"""Commands that run something: run, compare, resume."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from qloom.cli import tables, values
from qloom.cli.progress import shown
from qloom.devices.technologies import TECHNOLOGIES
from qloom.errors import InputError, QloomError
from qloom.journal.file import start_of
from qloom.journal.history import read_history
from qloom.programs.load import BUILT_IN, Program, load_program
from qloom.runs.resume import resume as resume_run
from qloom.runs.runner import Outcome, Plan, execute
from qloom.site import Site
from qloom.strategies import STRATEGIES

ProgramArgument = Annotated[
    str, typer.Argument(help="file.py[:function], a job file (.toml), or a built-in: phases, clustering")
]
World = Annotated[str, typer.Option(help="Where it runs: local, virtual or slurm.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes of the cluster. [default: 3]")]
Jobs = Annotated[int, typer.Option(help="How many copies of the program run at once.")]
Set = Annotated[list[str], typer.Option("--set", help="A parameter of the program: name=value. Repeatable.")]
Option = Annotated[list[str], typer.Option("--option", help="An option of the strategy: name=number. Repeatable.")]
Qpu = Annotated[
    list[str],
    typer.Option("--qpu", help=f"A QPU, NAME:TECHNOLOGY[:offline], of {', '.join(TECHNOLOGIES)}. Repeatable."),
]
Broker = Annotated[
    str | None,
    typer.Option(
        help="A broker that has the QPUs: http://HOST:PORT or its unix socket. "
        "[default: on Slurm $QLOOM_BROKER; else in process]"
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
SiteFile = Annotated[Path | None, typer.Option("--site", help="A site file (TOML): nodes, QPUs, watts.")]
Slurm = Annotated[
    list[str],
    typer.Option("--slurm", help="For every Slurm job: a key of the site's table [slurm], key=value. Repeatable."),
]
OverheadsFile = Annotated[Path | None, typer.Option("--overheads", help="Overheads for virtual time (TOML).")]
Profile = Annotated[str | None, typer.Option(help="An earlier run whose durations and results virtual time takes.")]
Engine = Annotated[
    str | None, typer.Option(help="Who runs the workflow strategy's steps: streamflow. [default: qloom itself]")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file, for --overheads.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command()(run)
    app.command()(compare)
    app.command()(resume)
    app.command()(measure)


def run(
    program: ProgramArgument,
    strategy: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(STRATEGIES.built_in)}, or auto; also with another hold of the QPU: malleable+share."
        ),
    ] = "offload",
    world: World = "local",
    nodes: Nodes = None,
    jobs: Jobs = 1,
    settings: Set = [],  # noqa: B006  typer makes a new one for each call
    option: Option = [],  # noqa: B006
    qpu: Qpu = [],  # noqa: B006
    broker: Broker = None,
    seed: Seed = 0,
    site: SiteFile = None,
    overheads: OverheadsFile = None,
    slurm: Slurm = [],  # noqa: B006
    profile: Profile = None,
    engine: Engine = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a program and say what it held and used."""
    plan = Plan(
        load_program(program),
        values.parse_settings(settings),
        strategy=strategy,
        options=values.parse_options(option),
        world=world,
        site=behind(broker, values.make_site(site, nodes, qpu, overheads, slurm)),
        jobs=jobs,
        seed=seed,
        profile=profile,
        engine=engine,
    )
    if strategy == "auto":
        from qloom.cli.advise import choose

        plan = choose(plan, shown=not (as_json or quiet))
    with shown(f"{program} under {plan.strategy}", Console(stderr=True), not (as_json or quiet)) as progress:
        outcome = execute(plan, listener=progress)
    notes = [*outcome.notes, *plan.program.notes_on(outcome.results)]
    tell(replace(outcome, notes=notes), as_json, quiet, plan.program)


def behind(broker: str | None, place: Site) -> Site:
    """A site whose QPUs a broker has, if one is named on the command line or in the site file."""
    address = broker or place.broker
    if address is not None and place.qpus != Site().qpus:
        raise InputError("with a broker, the QPUs are those of the broker", hint="leave out --qpu and [[qpus]]")
    return replace(place, broker=address)


def compare(
    program: ProgramArgument,
    strategies: Annotated[str, typer.Option(help="Names separated by commas, or all.")] = "all",
    world: World = "local",
    nodes: Nodes = None,
    jobs: Jobs = 1,
    settings: Set = [],  # noqa: B006
    option: Option = [],  # noqa: B006
    qpu: Qpu = [],  # noqa: B006
    broker: Broker = None,
    seed: Seed = 0,
    site: SiteFile = None,
    overheads: OverheadsFile = None,
    slurm: Slurm = [],  # noqa: B006
    profile: Profile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a program under several strategies and compare their cost. They run one after the other."""
    loaded = load_program(program)
    place = behind(broker, values.make_site(site, nodes, qpu, overheads, slurm))
    names = values.parse_strategies(strategies)
    options = values.parse_options(option)
    values.require_known(options, names)
    plans = [
        Plan(
            loaded,
            values.parse_settings(settings),
            strategy=strategy,
            options=values.options_for(strategy, options),
            world=world,
            site=place,
            jobs=jobs,
            seed=seed,
            profile=profile,
        )
        for strategy in names
    ]
    rows, errors = run_all(plans, quiet=as_json or quiet)
    if as_json:
        print(json.dumps({"rows": rows, "errors": [error.as_dict() for error in errors]} if errors else rows))
    else:
        title = f"{program}: {jobs} {'job' if jobs == 1 else 'jobs'}, {place.nodes} nodes, {world}"
        Console().print(tables.figures_table(title, rows))
    if errors:
        _fail(errors, as_json=False)


def run_all(plans: list[Plan], *, quiet: bool) -> tuple[list[dict[str, Any]], list[QloomError]]:
    """Carry out several plans, all checked before the first one runs; rows of those that fail have no figures."""
    for plan in plans:
        plan.check()
    rows, errors = [], []
    for plan in plans:
        with shown(f"{plan.strategy}, {plan.world}", Console(stderr=True), not quiet) as progress:
            outcome = execute(plan, listener=progress)
        row = tables.row(read_history(outcome.events), outcome.run)
        rows.append(tables.without_figures(row) if outcome.errors else row)
        errors.extend(outcome.errors)
    return rows, errors


def resume(
    run: Annotated[str, typer.Argument(help="The id of a run, the start of one, a path, or last.")] = "last",
    driver: Annotated[str, typer.Option(help="Where its driver lives: here, or as in submit.")] = "here",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was interrupted or failed. What its journal holds is not run again."""
    with shown(f"resuming {run}", Console(stderr=True), not (as_json or quiet)) as progress:
        outcome = resume_run(run, listener=progress, driver=driver)
    source = start_of(outcome.events).program
    tell(outcome, as_json, quiet, load_program(source) if source in BUILT_IN else None)


def measure(
    nodes: Nodes = None,
    world: Annotated[str, typer.Option(help="What is measured: local or slurm.")] = "local",
    site: SiteFile = None,
    slurm: Slurm = [],  # noqa: B006
    output: Output = None,
) -> None:
    """Measure overheads of a world, for virtual time. On Slurm best while nothing else runs."""
    write_overheads(world, values.make_site(site, nodes, [], None, slurm), output)


def write_overheads(world: str, site: Site, output: Path | None) -> None:
    """Measure a world, and write or print what `--overheads` reads."""
    if world not in ("local", "slurm"):
        raise InputError(f"the world {world!r} cannot be measured", hint="--world local or --world slurm")
    measuring = importlib.import_module(f"qloom.worlds.{world}.measure")
    overheads = measuring.measure(site, "qloom.programs.phases")
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in vars(overheads).items() if name[0] != "_")
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from None
    print(output)


def tell(outcome: Outcome, as_json: bool, quiet: bool, program: Program | None = None) -> None:
    """Print what came of a run, in the program's words if it has any; raises if a job failed."""
    summaries: list[str] = []
    rows = [tables.row(read_history(outcome.events), outcome.run)]
    if as_json:
        body: dict[str, Any] = {**rows[0], "results": outcome.results}
        if outcome.errors:
            body["errors"] = [error.as_dict() for error in outcome.errors]
        print(json.dumps(plain(body)))
    elif not outcome.errors:
        for number, result in enumerate(outcome.results, 1):
            directory = outcome.directory / "output" / f"j{number}" if outcome.directory is not None else None
            summaries.append(str(result) if program is None else program.summary_of(result, directory))
            print(summaries[-1])
    wrong_input = any(error.exit_code == 2 for error in outcome.errors)  # then one line says it all
    if not (as_json or quiet or wrong_input):
        console = Console(stderr=True, highlight=False)
        for directory in _files_of(outcome):
            if not any(str(directory) in summary for summary in summaries):
                console.print(f"files: {directory}", markup=False, soft_wrap=True)
        for note in outcome.notes:
            console.print(f"note: {note}", markup=False)
        failed = " (failed)" if outcome.errors else ""
        console.print(tables.figures_table(f"run {outcome.run}{failed}", rows))
    if outcome.errors:
        _fail(outcome.errors, as_json)


def plain(value: Any) -> Any:
    """A result as strict JSON: keys become text, and what JSON has no form for is told as text too."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


def _files_of(outcome: Outcome) -> list[Path]:
    """The directories that the jobs have left files in."""
    output = outcome.directory / "output" if outcome.directory is not None else None
    return [own for own in sorted(output.iterdir()) if any(own.iterdir())] if output and output.is_dir() else []


def _fail(errors: list[QloomError], as_json: bool) -> None:
    """A job failed: the errors were part of the JSON already, or are told now, one line each."""
    if not as_json:
        console = Console(stderr=True, highlight=False)
        for line in dict.fromkeys(f"qloom: {error}" for error in errors):  # several strategies, the same mistake
            console.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(max(error.exit_code for error in errors))
