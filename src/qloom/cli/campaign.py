"""`qloom campaign`: run a matrix of cells, report on it, and run it again to the byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from qloom.cli.progress import Progress, shown_lines
from qloom.cli.tables import Json, table
from qloom.errors import InputError, JobError
from qloom.journal.event import Event
from qloom.site import read_site

app = typer.Typer(
    help="Run a matrix of cells and compare them. Also with what was published.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CampaignArgument = Annotated[str, typer.Argument(help="A campaign file (.toml) or the name of a built-in one.")]
DoneArgument = Annotated[str, typer.Argument(help="A campaign that was run: its name, a path, or last.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only where it is kept.")]


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.add_typer(app, name="campaign")


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """List built-in campaigns, and how far those on this machine are."""
    from qloom.lab.campaign.cells import expand
    from qloom.lab.campaign.read import built_in_names, read_raw, resolve

    rows = []
    for name in built_in_names():
        campaign = resolve(read_raw(name)[1], name)
        rows.append({"campaign": name, "cells": len(expand(campaign, name)), "title": campaign.title})
    here = _on_this_machine()
    if as_json:
        print(json.dumps({"built_in": rows, "here": here}))
        return
    Console().print(table(("campaign", "cells", "title"), rows))
    for row in here:
        Console(highlight=False).print(f"{row['campaign']}: {row['done']} of {row['runs']} runs done", soft_wrap=True)


def _on_this_machine() -> list[dict[str, object]]:
    from qloom.lab.campaign.cells import expand
    from qloom.lab.campaign.store import ASKED, CampaignStore, campaigns_directory

    rows: list[dict[str, object]] = []
    for path in sorted(campaigns_directory().glob(f"*/{ASKED}")):
        store = CampaignStore(path.parent)
        asked = store.asked()
        runs = asked.campaign().repeats * len(expand(asked.campaign(), asked.name))
        rows.append({"campaign": path.parent.name, "done": len(store.done()), "runs": runs})
    return rows


@app.command()
def run(
    campaign: CampaignArgument,
    world: Annotated[str | None, typer.Option(help="Where the cells run. [default: as the campaign says]")] = None,
    scale: Annotated[str, typer.Option(help="Multiply all times of programs and strategies by this: 1/5.")] = "1",
    overheads: Annotated[
        Path | None, typer.Option(help="Measured overheads (TOML), instead of the campaign's.")
    ] = None,
    calibrate: Annotated[
        str | None, typer.Option(help="Fit its values to a part of the published table first: all, or its names.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="How often each cell is run. [default: as the campaign says]")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run what is left of a campaign, and print its table. If interrupted, run the same command again."""
    from qloom.lab.campaign.execute import carry_out, fit
    from qloom.lab.campaign.formats import as_text
    from qloom.lab.campaign.plans import Conditions, parse_scale
    from qloom.lab.campaign.read import read_raw
    from qloom.lab.campaign.rows import read_results, rows_of
    from qloom.lab.campaign.store import CampaignRun

    name, raw = read_raw(campaign)
    if repeats is not None:
        raw["repeats"] = repeats
    measured = read_site(overheads) if overheads is not None else None
    values = fit(raw, name, calibrate) if calibrate is not None else {}
    asked = CampaignRun(name, raw, Conditions(world, parse_scale(scale), measured), calibrate, values)
    try:
        with _progress(Console(stderr=True), not (as_json or quiet)) as progress:
            store = carry_out(asked, progress.step, progress)
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupted = JobError("interrupted", hint="run the same command to continue")
        interrupted.exit_code = 130
        raise interrupted from None
    if quiet:
        print(store.directory)
    elif as_json:
        print(json.dumps(rows_of(read_results(store))))
    else:
        Console(highlight=False).print(as_text(read_results(store)))


@app.command()
def report(
    campaign: DoneArgument = "last",
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="text, csv, json, md, html or manifest. [default: by the suffix of the file, else text]",
        ),
    ] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file. [default: standard output]")] = None,
) -> None:
    """Report the results of a campaign. Means, intervals, differences, the published table, the manifest."""
    from qloom.lab.campaign import formats
    from qloom.lab.campaign.rows import read_results
    from qloom.lab.campaign.store import find_store
    from qloom.views.page import write_view

    suffixes = {".txt": "text", ".csv": "csv", ".json": "json", ".md": "markdown", ".html": "html"}
    if output is not None and not kind and output.suffix not in suffixes:
        raise InputError(f"{output} has no known suffix", hint=f"use {', '.join(suffixes)}, or give --format")
    kind = kind or (suffixes[output.suffix] if output is not None else "text")
    results = read_results(find_store(campaign))
    match kind:
        case "text":
            text = formats.printed(results)
        case "csv":
            text = formats.as_csv(results)
        case "json":
            text = formats.as_json(results)
        case "markdown" | "md":
            text = formats.as_markdown(results)
        case "manifest":
            text = formats.as_manifest(results)
        case "html":
            from qloom.lab.campaign.page import page_of

            text = page_of(results)
        case _:
            raise InputError(f"unknown format {kind!r}", hint="text, csv, json, md, html or manifest")
    if output is not None:
        write_view(output, text.encode())
        print(output)
    else:
        print(text, end="")


@app.command()
def draw(
    campaign: DoneArgument = "last",
    what: Annotated[str, typer.Option(help="map, bars or nodes (over time).")] = "auto",
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: .svg or .png.")] = Path("campaign.svg"),
) -> None:
    """Draw a campaign. Its map if it has one, its bars, or the nodes that its jobs held over time."""
    from qloom.lab.campaign.charts import drawing_of
    from qloom.lab.campaign.rows import read_results
    from qloom.lab.campaign.store import find_store
    from qloom.views.page import write_view

    if output.suffix not in (".svg", ".png"):
        raise InputError(f"cannot draw a {output.suffix or 'file without a suffix'}", hint="use .svg or .png")
    write_view(output, drawing_of(read_results(find_store(campaign)), what, output.suffix[1:]))
    print(output)


@app.command()
def verify(campaign: DoneArgument = "last", as_json: Json = False) -> None:
    """Run the virtual cells again. Their journals must be the same, byte for byte."""
    from qloom.lab.campaign.execute import verify as verify_store
    from qloom.lab.campaign.store import find_store

    store = find_store(campaign)
    with _progress(Console(stderr=True), not as_json) as progress:
        compared, others, different = verify_store(store, progress.step)
    if as_json:
        print(json.dumps({"compared": compared, "not_virtual": others, "different": different}))
    else:
        left_out = f"; {others} are not virtual" if others else ""
        print(f"{compared - len(different)} of {compared} journals are the same, byte for byte{left_out}")
    if different:
        raise JobError(f"{len(different)} journals differ, the first: {different[0]}")


@app.command()
def calibrate(
    campaign: CampaignArgument,
    on: Annotated[str, typer.Option(help="The part of the published table: all, or a name of the campaign.")] = "all",
    as_json: Json = False,
) -> None:
    """Fit the values of a campaign to its published table. Prints them as its file has them."""
    from qloom.lab.campaign.execute import fit
    from qloom.lab.campaign.read import read_raw

    name, raw = read_raw(campaign)
    values = fit(raw, name, on)
    if as_json:
        print(json.dumps(values))
        return
    for key, value in values.items():
        print(f"[calibrated.{key}]\nvalue = {value}")


class _Steps:
    """How far a campaign is, and what its present cell does."""

    def __init__(self) -> None:
        self._title = "no run has begun yet"
        self._cell = Progress()

    def step(self, done: int, of: int, what: str) -> None:
        """The next cell begins."""
        self._title = f"{done} of {of} runs done; {what}"
        self._cell = Progress()

    def __call__(self, event: Event) -> None:
        self._cell(event)

    def lines(self) -> list[str]:
        """What to show on a terminal."""
        return [self._title, *self._cell.lines()]

    def line(self) -> list[str]:
        """What to show in a log."""
        return [self._title]


@contextmanager
def _progress(console: Console, wanted: bool) -> Iterator[_Steps]:
    steps = _Steps()
    if not wanted:
        yield steps
        return
    with shown_lines(console, steps.lines, steps.line):
        yield steps
