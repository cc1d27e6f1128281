"""Commands that run something: run, compare, resume, measure."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from qloom.cli import arguments, tables
from qloom.cli.progress import shown
from qloom.errors import InputError, QloomError
from qloom.journal.file import read_events, start_of
from qloom.journal.history import read_history
from qloom.journal.home import find_run
from qloom.programs.load import BUILT_IN, Program, load_program
from qloom.runs.notify import notifying
from qloom.runs.resume import resume as resume_run
from qloom.runs.runner import Outcome, Plan, execute
from qloom.site import Site
from qloom.worlds import world_entry


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command()(run)
    app.command()(compare)
    app.command()(resume)
    app.command()(measure)


def run(
    program: arguments.ProgramArgument,
    strategy: arguments.Strategy = "offload",
    world: arguments.World = "local",
    nodes: arguments.Nodes = None,
    jobs: arguments.Jobs = 1,
    settings: arguments.Set = [],  # noqa: B006  typer makes a new one for each call
    option: arguments.Option = [],  # noqa: B006
    qpu: arguments.Qpu = [],  # noqa: B006
    broker: arguments.Broker = None,
    seed: arguments.Seed = 0,
    site: arguments.SiteFile = None,
    overheads: arguments.OverheadsFile = None,
    slurm: arguments.Slurm = [],  # noqa: B006
    profile: arguments.Profile = None,
    engine: arguments.Engine = None,
    most_qpu_s: arguments.MostQpuS = None,
    on_recalibration: arguments.OnRecalibration = "warn",
    notify: arguments.Notify = None,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show what its first iteration asks for, and what strategies would hold."
        ),
    ] = False,
    as_json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Run a program and show what it held and used."""
    loaded = load_program(program)
    plan = Plan(
        loaded,
        arguments.parse_settings(settings, loaded),
        strategy=strategy,
        options=arguments.parse_options(option),
        world=world,
        site=arguments.behind(broker, arguments.make_site(site, nodes, qpu, overheads, slurm)),
        jobs=jobs,
        seed=seed,
        profile=profile,
        engine=engine,
        most_qpu_s=most_qpu_s,
        on_recalibration=on_recalibration,
    )
    if strategy == "auto":
        from qloom.cli.advise import choose

        plan = choose(plan, shown=not (as_json or quiet))
    if dry:
        _show_dry_run(plan, as_json, quiet)
        return
    with notifying(notify), shown(Console(stderr=True), not (as_json or quiet)) as progress:
        outcome = execute(plan, listener=progress)
    notes = [*outcome.notes, *plan.program.notes_on(outcome.results)]
    show_outcome(replace(outcome, notes=notes), as_json, quiet, plan.program)


def _show_dry_run(plan: Plan, as_json: bool, quiet: bool) -> None:
    from qloom.lab.advisor.dry import dry_run

    plan.check()
    found = dry_run(plan.with_devices(), list(dict.fromkeys((plan.strategy, *arguments.parse_strategies("all")))))
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    print(f"first iteration: {found.demand}")
    if not quiet:
        Console().print(tables.figures_table("what strategies would hold for it", found.rows))


def compare(
    program: arguments.ProgramArgument,
    strategies: Annotated[str, typer.Option(help="Names separated by commas, or all.")] = "all",
    world: arguments.World = "local",
    nodes: arguments.Nodes = None,
    jobs: arguments.Jobs = 1,
    settings: arguments.Set = [],  # noqa: B006
    option: arguments.Option = [],  # noqa: B006
    qpu: arguments.Qpu = [],  # noqa: B006
    broker: arguments.Broker = None,
    seed: arguments.Seed = 0,
    site: arguments.SiteFile = None,
    overheads: arguments.OverheadsFile = None,
    slurm: arguments.Slurm = [],  # noqa: B006
    profile: arguments.Profile = None,
    as_json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Run a program under several strategies and compare their cost. They run one after the other."""
    loaded = load_program(program)
    place = arguments.behind(broker, arguments.make_site(site, nodes, qpu, overheads, slurm))
    names = arguments.parse_strategies(strategies)
    options = arguments.parse_options(option)
    arguments.require_known(options, names)
    plans = [
        Plan(
            loaded,
            arguments.parse_settings(settings, loaded),
            strategy=strategy,
            options=arguments.options_for(strategy, options),
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
        with shown(Console(stderr=True), not quiet) as progress:
            outcome = execute(plan, listener=progress)
        row = tables.row(read_history(outcome.events), outcome.run)
        rows.append(tables.without_figures(row) if outcome.errors else row)
        errors.extend(outcome.errors)
    return rows, errors


def resume(
    run: Annotated[str, typer.Argument(help="The id of a run, the start of one, a path, or last.")] = "last",
    driver: Annotated[str, typer.Option(help="Where its driver lives: here, or as in submit.")] = "here",
    on_divergence: Annotated[
        str,
        typer.Option(help="If the program no longer makes the calls of its journal: stop, or continue from there."),
    ] = "stop",
    on_recalibration: arguments.OnRecalibrationSince = None,
    most_qpu_s: arguments.MostQpuS = None,
    notify: arguments.Notify = None,
    as_json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Continue a run that was interrupted or failed. What its journal holds is not run again."""
    wanted = not (as_json or quiet)
    past = read_events(find_run(run)) if wanted else ()
    with notifying(notify), shown(Console(stderr=True), wanted, past) as progress:
        outcome = resume_run(
            run,
            listener=progress,
            driver=driver,
            on_divergence=on_divergence,
            on_recalibration=on_recalibration,
            most_qpu_s=most_qpu_s,
        )
    source = start_of(outcome.events).program
    show_outcome(outcome, as_json, quiet, load_program(source) if source in BUILT_IN else None)


def measure(
    nodes: arguments.Nodes = None,
    world: Annotated[str, typer.Option(help="What is measured: local or slurm.")] = "local",
    site: arguments.SiteFile = None,
    slurm: arguments.Slurm = [],  # noqa: B006
    output: arguments.Output = None,
) -> None:
    """Measure overheads of a world, for virtual time. On Slurm best while nothing else runs."""
    write_overheads(world, arguments.make_site(site, nodes, [], None, slurm), output)


def write_overheads(world: str, site: Site, output: Path | None) -> None:
    """Measure a world, and write or print what `--overheads` reads."""
    overheads = world_entry(world).measure(site, "qloom.programs.phases")
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in vars(overheads).items() if name[0] != "_")
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from None
    print(output)


def show_outcome(outcome: Outcome, as_json: bool, quiet: bool, program: Program | None = None) -> None:
    """Print the results of a run, as the program words them if it does; raises if a job failed."""
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
            console.print(f"note: {note}", markup=False, soft_wrap=True)
        failed = " (failed)" if outcome.errors else ""
        console.print(tables.figures_table(f"run {outcome.run}{failed}", rows))
    if outcome.errors:
        _fail(outcome.errors, as_json)


def plain(value: Any) -> Any:
    """A result as strict JSON: keys, and values that JSON has no form for, become text."""
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
    """Exit because a job failed. The JSON has its errors already; otherwise print one line for each."""
    if not as_json:
        console = Console(stderr=True, highlight=False)
        for line in dict.fromkeys(f"qloom: {error}" for error in errors):  # several strategies, the same mistake
            console.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(max(error.exit_code for error in errors))
