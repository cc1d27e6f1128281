"""Commands that look: at runs (runs, show, explain, timeline), at what job files may say and at what is installed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from qloom.cli import tables
from qloom.cli.tables import Json, Quiet
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.events import RunStarted
from qloom.journal.file import FILE_NAME, ended_as, has_writer, read_events, start_of
from qloom.journal.history import read_history
from qloom.journal.queries import driver_job, handed_to, measured_figures, require_jobs

FILES_SHOWN = 12

RunArgument = Annotated[str, typer.Argument(help="The id of a run, the start of one, a path, or last.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command()(runs)
    app.command()(show)
    app.command()(explain)
    app.command()(timeline)
    app.command()(schema)
    app.command()(plugins)


def runs(
    limit: Annotated[int, typer.Option(min=0, help="How many, newest first; 0 for all.")] = 20,
    every: Annotated[bool, typer.Option("--all", help="The cells of campaigns, too.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the index of runs anew.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the runs on this machine, newest first."""
    if rebuild:
        home.rebuild_index()
    rows = _as_slurm_says(home.list_runs(limit or None, parts=every))
    if as_json:
        print(json.dumps(rows))
    elif quiet:
        for row in rows:
            print(row["run"])
    else:
        table = Table(pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
        for heading in ("run", "program", "strategy", "world", "jobs", "state"):
            table.add_column(heading, no_wrap=heading != "program", overflow="fold")
        for row in rows:
            program = os.path.basename(str(row.get("program") or "?"))
            cells = [row.get("strategy"), row.get("world"), row.get("jobs"), row["state"]]
            table.add_row(row["run"], program, *(str(cell if cell is not None else "?") for cell in cells))
        Console().print(table)
        all_names = home.run_names()
        wanted = all_names if every else [name for name in all_names if not home.is_part(name)]
        if (more := len(wanted) - len(rows)) > 0:
            print(f"... and {more} more (--limit 0)")
        if left_out := len(all_names) - len(wanted):
            print(f"without {left_out} {'cell' if left_out == 1 else 'cells'} of campaigns (--all)")


def _as_slurm_says(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows; of those whose driver is, or will be, a Slurm job, Slurm knows more than the journal."""
    jobs = [row["slurm_job"] for row in rows if row.get("slurm_job")]
    if not jobs:
        return rows
    from qloom.worlds.slurm.driver_job import stages

    states = {"waits": "submitted", "holds": "running", "ended": "killed"}
    found = stages(jobs)
    return [{**row, "state": states.get(found.get(str(row.get("slurm_job")), ""), row["state"])} for row in rows]


def show(run: RunArgument = "last", as_json: Json = False, quiet: Quiet = False) -> None:
    """Show what a run held and used, as a whole and for each job."""
    directory = home.find_run(run)
    events = read_events(directory)
    if (figures := measured_figures(events)) is not None:
        _show_workload(directory, start_of(events), figures, as_json, quiet)
        return
    history = read_history(events)
    total = tables.row(history, directory.name)
    jobs = [tables.row(history, directory.name, job) for job in history.jobs]
    if as_json:
        files = {job: files_of(directory, job) for job in history.jobs}
        print(json.dumps({**total, "per_job": jobs, "parameters": start_of(events).parameters, "files": files}))
        return
    console = Console(highlight=False)
    if quiet:
        console.print(" ".join(f"{figure}={total[figure]}" for figure in tables.COLUMNS.values()), soft_wrap=True)
        return
    start = start_of(events)
    rows = [{**row, "job": row.get("job", "all")} for row in ([*jobs, total] if len(jobs) > 1 else jobs)]
    state = "" if total["state"] == "done" else f" ({total['state']})"
    title = f"{_title(start)}{state}"
    console.print(tables.figures_table(title, rows, first="job"))
    console.print(_waits(jobs))
    if (other := _instead(events, directory)) is not None:
        console.print(other, markup=False)
    for job in history.jobs:
        for line in _files_in_words(directory, job):
            console.print(line, markup=False, soft_wrap=True)
    console.print(f"journal: {directory / FILE_NAME}", markup=False, soft_wrap=True)


def files_of(directory: Path, job: str) -> dict[str, int]:
    """The files that a job has left, and the size of each in bytes."""
    own = directory / "output" / job
    found = sorted(path for path in own.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(own)): path.stat().st_size for path in found}


def _files_in_words(directory: Path, job: str) -> list[str]:
    files = files_of(directory, job)
    if not files:
        return []
    names = [f"{name} ({_size(size)})" for name, size in list(files.items())[:FILES_SHOWN]]
    more = [f"{len(files) - FILES_SHOWN} more"] if len(files) > FILES_SHOWN else []
    return [f"files of {job}, in {directory / 'output' / job}: {', '.join(names + more)}"]


def _size(size: int) -> str:
    for unit, of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= of:
            return f"{size / of:.1f} {unit}"
    return f"{size} B"


def _title(start: RunStarted) -> str:
    return f"{os.path.basename(start.program or '')} under {start.strategy}, {start.world}"


def _show_workload(directory: Path, start: RunStarted, figures: dict[str, float], as_json: bool, quiet: bool) -> None:
    """A run that is a cluster under load."""
    from qloom.lab.campaign.formats import HEADINGS

    console = Console(highlight=False)
    if as_json:
        fields = start.as_dict()
        plan = {name: fields[name] for name in ("strategy", "world", "jobs", "parameters")}
        print(json.dumps({"run": directory.name, **plan, **figures}))
    elif quiet:
        console.print(" ".join(f"{figure}={value}" for figure, value in figures.items()), soft_wrap=True)
    else:
        console.print(f"a workload of {start.jobs} jobs, hybrid ones under {start.strategy}", markup=False)
        table = Table(pad_edge=False, show_header=False, box=box.SIMPLE_HEAD)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for figure, value in figures.items():
            table.add_row(HEADINGS[figure], f"{value:.1%}" if figure.endswith("_use") else f"{value:.1f}")
        console.print(table)
        console.print(f"journal: {directory / FILE_NAME}", markup=False, soft_wrap=True)


def _instead(events: list[Event], directory: Path) -> str | None:
    """The estimated cost under another strategy, if there is an estimate."""
    from qloom.lab.advisor.trial import instead

    found = instead(events, directory)
    return None if found is None else str(found)


def _waits(jobs: list[dict[str, Any]]) -> Table:
    table = Table(pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
    headings = ("job", "turnaround s", "wait for nodes s", "for QPU s", "program s", "slowdown", "energy kJ")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "job" else "right", no_wrap=True)
    for row in jobs:
        energy = "-" if row["energy_j"] is None else f"{row['energy_j'] / 1000:.1f}"
        figures = ("turnaround_s", "node_wait_s", "qpu_wait_s", "program_s", "bounded_slowdown")
        table.add_row(row["job"], *(f"{row[figure]:.1f}" for figure in figures), energy)
    return table


def explain(run: RunArgument = "last", as_json: Json = False) -> None:
    """Explain what a run waits for and why, or where its time went."""
    from qloom.views.explain import explain as explain_events

    directory = home.find_run(run)
    events = read_events(directory)
    epoch_us = start_of(events).epoch_us
    alive, slurm_job = has_writer(directory), None
    interrupted = ended_as(events) == "interrupted"
    if (id := handed_to(events) or (driver_job(events) if interrupted else None)) is not None:
        from qloom.worlds.slurm.driver_job import look

        slurm_job = look(id)
        alive = slurm_job.stage == "holds" or alive
    goes_on = alive or slurm_job is not None
    now_us = time.time_ns() // 1000 - epoch_us if goes_on and epoch_us is not None else None
    sentences = explain_events(events, alive=alive, now_us=now_us, run=run, slurm_job=slurm_job)
    if as_json:
        print(json.dumps({"run": directory.name, "sentences": sentences}))
    else:
        for sentence in sentences:
            Console(highlight=False).print(sentence, markup=False)


def timeline(
    run: RunArgument = "last",
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: .svg, .png or .html.")] = Path(
        "timeline.svg"
    ),
    quiet: Quiet = False,
) -> None:
    """Draw who held what and when. Nodes above, QPUs below, colour is the job, held but idle is hatched."""
    from qloom.views.page import draw_timeline

    directory = home.find_run(run)
    events = read_events(directory)
    require_jobs(events, directory.name)
    start = start_of(events)
    draw_timeline([(start.strategy, events)], output, title=_title(start))
    if not quiet:
        print(output)


def schema() -> None:
    """Print the JSON schema of job files."""
    from qloom.jobfile import jobfile_schema

    print(json.dumps(jobfile_schema(), indent=2))


def plugins(as_json: Json = False) -> None:
    """List strategies, worlds, devices, policies and engines."""
    from qloom.broker.doors.registry import DOORS
    from qloom.devices.factory import DEVICES
    from qloom.lab.schedulers import POLICIES
    from qloom.payloads.adapt import ADAPTERS
    from qloom.runs.plan import ENGINES
    from qloom.strategies import STRATEGIES
    from qloom.worlds import WORLDS

    rows = [
        {"kind": registry.kind, "name": entry.name, "from": entry.origin, "target": entry.target, "problem": problem}
        for registry in (STRATEGIES, WORLDS, DEVICES, ADAPTERS, POLICIES, DOORS, ENGINES)
        for entry, problem in registry.plug_ins()
    ]
    if as_json:
        print(json.dumps(rows))
    else:
        problems = ["problem"] if any(row["problem"] for row in rows) else []
        Console().print(tables.table(("kind", "name", "from", *problems), rows))
