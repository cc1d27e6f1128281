"""`qloom advise`: which strategy a job should take, and why; and what `--strategy auto` does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from qloom.cli import arguments
from qloom.errors import InputError, JournalError, QloomError
from qloom.journal import home
from qloom.journal.file import read_events
from qloom.journal.queries import has_ended_work
from qloom.lab.advisor import FALLBACK, Advice, Estimate
from qloom.lab.advisor import advise as advise_plan
from qloom.lab.advisor.advice import SAMPLES, Figure, abstain
from qloom.lab.advisor.crowd import Crowd, Waits
from qloom.lab.advisor.known import Known, known_of
from qloom.programs.load import BUILT_IN, load_program
from qloom.runs.plan import Plan, plan_of

Subject = Annotated[
    str, typer.Argument(help="A program (as for run), or an earlier run: its id, the start of one, a path, or last.")
]
Value = Annotated[
    float | None, typer.Option(help="Node-seconds that a second of wall time is worth. [default: the job's nodes]")
]
Wait = Annotated[
    float | None, typer.Option(help="Mean seconds that nodes take to come. [default: of the queue on Slurm, else 0]")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command()(advise)


def advise(
    subject: Subject,
    world: Annotated[str, typer.Option(help="Where it would run: local, virtual or slurm.")] = "virtual",
    nodes: arguments.Nodes = None,
    jobs: arguments.Jobs = 1,
    settings: arguments.Set = [],  # noqa: B006  typer makes a new one for each call
    qpu: arguments.Qpu = [],  # noqa: B006
    broker: arguments.Broker = None,
    seed: arguments.Seed = 0,
    site: arguments.SiteFile = None,
    overheads: arguments.OverheadsFile = None,
    slurm: arguments.Slurm = [],  # noqa: B006
    wait: Wait = None,
    value: Value = None,
    strategies: Annotated[str, typer.Option(help="Names separated by commas, or all.")] = "all",
    samples: Annotated[int, typer.Option(help="Most trials of a strategy.", min=1)] = SAMPLES,
    as_json: arguments.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the flag.")] = False,
) -> None:
    """Recommend a strategy for a program, with the reason. Each is tried in virtual time."""
    if _is_program(subject):
        place = arguments.behind(broker, arguments.make_site(site, nodes, qpu, overheads, slurm))
        program = load_program(subject)
        parameters = arguments.parse_settings(settings, program)
        plan = Plan(program, parameters, world=world, site=place, jobs=jobs, seed=seed)
        known = known_of(plan.program.source)
    else:
        if settings or nodes is not None or qpu or site or overheads or broker or slurm:
            raise InputError("a run has its own settings and site", hint="leave them out, or name the program")
        plan, known = _of_run(subject)
    plan.check()
    advice = advice_for(
        plan, known, wait, value, arguments.parse_strategies(strategies), samples, shown=not (as_json or quiet)
    )
    if advice.abstains is not None:
        raise InputError(f"no advice: {advice.abstains}", hint=f"run it once, or give expected_s; else {advice.flag}")
    if as_json:
        print(json.dumps(advice.as_dict()))
    elif quiet:
        print(advice.flag)
    else:
        _show(advice, known)


def choose(plan: Plan, *, shown: bool) -> Plan:
    """What `--strategy auto` means: the plan under the recommended strategy. Its journal keeps the reason."""
    arguments.require_known(plan.options, arguments.parse_strategies("all"))
    neutral = replace(plan, strategy=FALLBACK, options=arguments.options_for(FALLBACK, plan.options))
    neutral.check()
    known = known_of(plan.program.source, *([plan.profile] if plan.profile is not None else []))
    try:
        advice = advice_for(neutral, known, None, None, arguments.parse_strategies("all"), SAMPLES, shown)
    except QloomError as failure:  # it may well run where it is meant to
        advice = abstain(f"the program cannot be tried in virtual time: {failure.message}")
    if shown:
        word = "auto abstains" if advice.abstains else "auto"
        Console(stderr=True, highlight=False).print(
            f"{word}: {advice.flag}; {advice.reason}", markup=False, soft_wrap=True
        )
    options = arguments.options_for(advice.strategy, plan.options)
    return replace(plan, strategy=advice.strategy, options=options, advice=advice.as_dict())


def advice_for(
    plan: Plan,
    known: Known,
    wait_s: float | None,
    value: float | None,
    strategies: list[str],
    samples: int,
    shown: bool,
) -> Advice:
    """Read the cluster's queue, then try the strategies; abstains if the cluster does not answer."""
    notes: tuple[str, ...] = ()
    crowd: Crowd = Waits(wait_s or 0.0)
    qpu_wait_s = 0.0
    if wait_s is None and plan.world == "slurm":
        from qloom.lab.advisor.slurm import NoAnswer, read_queue

        try:
            crowd, notes = read_queue(plan.site)
        except NoAnswer as silence:
            return abstain(str(silence))
    if plan.broker is not None:
        from qloom.broker.client.client import devices_at

        devices = devices_at(plan.broker)
        plan = replace(plan, site=plan.site.with_devices(devices))
        qpu_wait_s = min((device["expected_wait_s"] or 0.0 for device in devices if device["up"]), default=0.0)
    with Console(stderr=True, quiet=not shown).status("trying strategies") as status:
        advice = advise_plan(
            plan,
            known=known,
            crowd=crowd,
            strategies=strategies,
            value_node_s=value,
            samples=samples,
            qpu_wait_s=qpu_wait_s,
            progress=lambda strategy: status.update(f"trying {strategy}"),
        )
    return replace(advice, notes=(*advice.notes, *notes))


def _is_program(subject: str) -> bool:
    name = subject.partition(":")[0]
    return subject in BUILT_IN or Path(name).suffix in (".py", ".toml")


def _of_run(name: str) -> tuple[Plan, Known]:
    """The plan of an earlier run, and what it has measured."""
    try:
        directory = home.find_run(name)
    except JournalError:
        if name == "last":
            raise  # it says what is wrong with that
        raise InputError(
            f"there is no program and no run {name!r}", hint="give file.py, a job file, a built-in, or see qloom runs"
        ) from None
    events = read_events(directory)
    if not has_ended_work(events):
        raise InputError(f"run {directory.name} has an empty history: no task of it has ended", hint="run it again")
    return replace(plan_of(events, directory.name), profile=None), known_of("", str(directory))


def _show(advice: Advice, known: Known) -> None:
    console = Console(highlight=False)
    table = Table(pad_edge=False, box=box.SIMPLE_HEAD)
    table.add_column("strategy", no_wrap=True)
    for heading in ("wall s", "node-seconds", "QPU-seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("cost", justify="right", no_wrap=True)
    for estimate in advice.estimates:
        table.add_row(*_cells(estimate, advice.strategy))
    console.print(table)
    source = "earlier runs" if known.measured else "what is expected"
    console.print(
        f"means and 90 % intervals, from {source}; wall time counts from submission, a second of it as "
        f"{advice.value_node_s:g} node-seconds",
        markup=False,
    )
    for note in advice.notes:
        console.print(f"note: {note}", markup=False)
    console.print(advice.flag, markup=False, soft_wrap=True)
    console.print(advice.reason, markup=False)


def _cells(estimate: Estimate, chosen: str) -> list[str]:
    figures = [_figure(figure) for figure in (estimate.wall_s, estimate.node_s, estimate.qpu_s)]
    return [estimate.strategy, *figures, "chosen" if estimate.strategy == chosen else f"{estimate.dearer:+.0%}"]


def _figure(figure: Figure) -> str:
    return f"{figure.mean:.0f} ({figure.low:.0f}-{figure.high:.0f})"
