"""`qloom`: run, compare and look at hybrid jobs."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_group

from qloom.cli import stall
from qloom.errors import InputError, QloomError, closest
from qloom.version import __version__

FILES = {  # the file of each command, in the order of the help
    "run": "running",
    "compare": "running",
    "resume": "running",
    "measure": "running",
    "watch": "watch",
    "dashboard": "watch",
    "cancel": "watch",
    "runs": "look",
    "show": "look",
    "result": "around",
    "logs": "logs",
    "explain": "look",
    "timeline": "look",
    "schema": "look",
    "advise": "advise",
    "demo": "demo",
    "submit": "slurm",
    "clustering": "clustering",
    "load": "load",
    "mpi": "mpi",
    "broker": "broker",
    "qpu": "qpu",
    "campaign": "campaign",
    "testbed": "testbed",
    "slurm": "slurm",
    "export": "export",
    "step": "export",
    "plugins": "look",
}


@functools.cache
def _commands_of(file: str) -> dict[str, Any]:
    part = typer.Typer(rich_markup_mode=None)
    importlib.import_module(f"qloom.cli.{file}").add_to(part)
    return dict(get_group(part).commands)


class Commands(TyperGroup):
    """The commands by name; the file of one is imported when it is asked for, so that each starts quickly."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """In the order of the help."""
        return list(FILES)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """From its file; None if there is none of that name."""
        return _commands_of(FILES[cmd_name]).get(cmd_name) if cmd_name in FILES else None

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """The command that the words begin with, or which one may be meant."""
        if args[0] not in FILES:
            raise InputError(f"unknown command {args[0]!r}", hint=closest(args[0], FILES) or "qloom --help")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
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


def run() -> None:
    """The entry point: errors are one line (or one JSON object), never a traceback."""
    as_json = "--json" in sys.argv
    try:
        stall.watch()
        code = app(prog_name="qloom", standalone_mode=False)
        if code == 130:  # typer's exit code for Ctrl-C
            raise KeyboardInterrupt
    except QloomError as error:
        sys.exit(report([error], as_json))
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):  # Ctrl-C, or asked to terminate
        sys.exit(_say(_interrupted(), 130, as_json))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output is gone
        sys.exit(1)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except SystemExit as done:  # 130 is typer's way to end on Ctrl-C
        sys.exit(_say(_interrupted(), 130, as_json) if done.code == 130 else done.code)
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors have one
            raise
        sys.exit(_say(str(error.format_message()), 2, as_json))
    sys.exit(code if isinstance(code, int) else 0)  # an Exit comes back as its code


def report(errors: list[QloomError], as_json: bool) -> int:
    """Print errors; returns the exit code."""
    if as_json:
        print(json.dumps({"errors": [error.as_dict() for error in errors]}))
    else:
        console = Console(stderr=True, highlight=False)
        for error in errors:
            console.print(f"qloom: {error}", markup=False, soft_wrap=True)
    return max(error.exit_code for error in errors)


def _interrupted() -> str:
    """What Ctrl-C interrupted, with the command that continues it if there is a run to continue."""
    from qloom.journal.home import left_open

    run = left_open()
    return "interrupted" if run is None else f"interrupted: continue with qloom resume {run}"


def _say(message: str, code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"errors": [{"error": "InputError", "message": message, "job": None, "hint": None}]}))
    else:
        print(f"qloom: {message}", file=sys.stderr)
    return code


__all__: list[Any] = ["app", "run"]
