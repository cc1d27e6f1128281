"""`qloom`: run, compare and look at hybrid jobs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from qloom.cli import (
    advise,
    broker,
    campaign,
    clustering,
    demo,
    export,
    load,
    look,
    mpi,
    qpu,
    running,
    slurm,
    submit,
    testbed,
)
from qloom.errors import QloomError
from qloom.version import __version__

INTERRUPTED = "interrupted: go on with qloom resume last"

app = typer.Typer(
    help="Run one hybrid classical-quantum program under any strategy, in any world.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"qloom {__version__}")
        raise typer.Exit


@app.callback()
def qloom(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run one hybrid classical-quantum program under any strategy, in any world."""


running.add_to(app)
look.add_to(app)
advise.add_to(app)
demo.add_to(app)
app.add_typer(clustering.app, name="clustering")
app.add_typer(load.app, name="load")
app.add_typer(mpi.app, name="mpi")
broker.add_to(app)
qpu.add_to(app)
campaign.add_to(app)
testbed.add_to(app)
slurm.add_to(app)
submit.add_to(app)
export.add_to(app)


def run() -> None:
    """The entry point: errors are one line (or one JSON object), never a traceback."""
    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=False)
        if code == 130:  # how typer tells of Ctrl-C
            raise KeyboardInterrupt
    except QloomError as error:
        sys.exit(report([error], as_json))
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):  # Ctrl-C, or asked to terminate
        sys.exit(_say(INTERRUPTED, 130, as_json))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has gone
        sys.exit(1)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except SystemExit as done:
        sys.exit(_say(INTERRUPTED, 130, as_json) if done.code == 130 else done.code)  # typer's way to end on Ctrl-C
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors have one
            raise
        sys.exit(_say(str(error.format_message()), 2, as_json))
    sys.exit(code if isinstance(code, int) else 0)  # an Exit comes back as its code


def report(errors: list[QloomError], as_json: bool) -> int:
    """Tell what went wrong; returns the exit code."""
    if as_json:
        print(json.dumps({"errors": [error.as_dict() for error in errors]}))
    else:
        console = Console(stderr=True, highlight=False)
        for error in errors:
            console.print(f"qloom: {error}", markup=False, soft_wrap=True)
    return max(error.exit_code for error in errors)


def _say(message: str, code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"errors": [{"error": "InputError", "message": message, "job": None, "hint": None}]}))
    else:
        print(f"qloom: {message}", file=sys.stderr)
    return code


__all__: list[Any] = ["app", "run"]
