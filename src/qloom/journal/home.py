"""Where runs are kept: private directories, an index that can be rebuilt, and `last`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from qloom.errors import JournalError, NotPrivate
from qloom.journal.events import RunEnded
from qloom.journal.file import FILE_NAME, has_writer, read_events, start_of, written
from qloom.journal.queries import HANDED_ON, handed_to
from qloom.journal.results import make_directories, write_atomically
from qloom.private import PrivateDirectory

INDEX = "index.json"
PART_OF = "part_of"  # a file beside the journal of a run that is a part of something greater: what that is called

_part_of: ContextVar[str | None] = ContextVar("part_of", default=None)


def home() -> Path:
    """$QLOOM_HOME, or qloom's folder in the user's data directory."""
    if given := os.environ.get("QLOOM_HOME"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "qloom"


def runs_directory() -> Path:
    """The folder that holds one private folder per run."""
    return home() / "runs"


def new_run() -> Path:
    """A new, private directory; its name is the time (UTC, to the microsecond), so names sort by time."""
    for _ in range(1000):
        now_us = time.time_ns() // 1000
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_us // 1_000_000))
        path = runs_directory() / f"{stamp}-{now_us % 1_000_000:06d}"
        try:
            make_directories(runs_directory())
            with PrivateDirectory.open(home()) as place:
                place.enter("runs").close()
            path.mkdir(mode=0o700)
            (path / "results").mkdir(mode=0o700)
            if (whole := _part_of.get()) is not None:
                (path / PART_OF).write_text(whole)
        except FileExistsError:
            continue
        except NotPrivate as error:
            raise JournalError(error.message, hint="set QLOOM_HOME to a directory of your own") from None
        except OSError as error:
            raise JournalError(
                f"cannot write to {runs_directory()}: {error.strerror}",
                hint="set QLOOM_HOME to a directory you can write",
            ) from None
        return path
    raise JournalError(f"no free name for a run in {runs_directory()}")


@contextmanager
def part_of(whole: str) -> Iterator[None]:
    """New runs are parts of something greater meanwhile, such as cells of a campaign: none of them is `last`."""
    token = _part_of.set(whole)
    try:
        yield
    finally:
        _part_of.reset(token)


def is_part(name: str) -> bool:
    """Whether a run is a part of something greater."""
    return (runs_directory() / name / PART_OF).exists()


def find_run(name: str) -> Path:
    """The directory of a run: `last`, its id, a unique start of its id, or a path."""
    if name == "last":
        last = next((run for run in reversed(run_names()) if not is_part(run)), None)
        if last is None:
            raise JournalError(f"there is no run yet in {runs_directory()}", hint="make one with: qloom run PROGRAM")
        return runs_directory() / last
    path = Path(name)
    if (path / FILE_NAME).is_file():
        return path
    found = [run for run in run_names() if run.startswith(name)] if name else []
    if len(found) == 1:
        return runs_directory() / found[0]
    if found:
        raise JournalError(f"{name!r} stands for {len(found)} runs", hint=f"say which: {', '.join(found[:3])}, ...")
    raise JournalError(f"there is no run {name!r}", hint="qloom runs lists them")


def left_open() -> str | None:
    """The run that this process has written to last, if it can be resumed; a part of something greater is not."""
    if not written or written[-1].parent != runs_directory() or is_part(written[-1].name):
        return None
    row = _describe(written[-1].name)
    return written[-1].name if row["state"] in ("running", "killed", "open", "interrupted", "failed") else None


def require_own(directory: Path, *names: str) -> None:
    """Refuse a journal (or what is named) of somebody else: there are pickles, which can run code when read."""
    try:
        with PrivateDirectory.open(directory) as place:
            for name in names or (FILE_NAME, "results"):
                with suppress(FileNotFoundError):
                    place.require_own(name)
    except FileNotFoundError:
        return
    except NotPrivate as error:
        raise JournalError(error.message, hint="only your own runs can be replayed") from None


def run_names() -> list[str]:
    """The ids of all runs, oldest first."""
    try:
        return sorted(entry.name for entry in os.scandir(runs_directory()) if (Path(entry.path) / FILE_NAME).exists())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read {runs_directory()}: {error.strerror}") from None


def list_runs(limit: int | None = None, *, parts: bool = True) -> list[dict[str, Any]]:
    """One row a run, newest first, with `parts` of something greater or without.

    Ended runs come from the index, which is mended on the way.
    """
    index = _read_index()
    names = run_names()
    wanted = names if parts else [name for name in names if not is_part(name)]
    rows = []
    for name in reversed(wanted[-limit:] if limit else wanted):
        row = index.get(name)
        if row is None:
            row = _describe(name)
            if row["state"] == "done":  # all others may still be resumed
                index[name] = row
        rows.append(row)
    known = dict.fromkeys(names)
    try:
        write_atomically(home() / INDEX, json.dumps({name: index[name] for name in index if name in known}).encode())
    except OSError:
        pass  # the index only saves time
    return rows


def runs_of(program: str, most: int = 5, among: int = 50) -> list[str]:
    """The last runs of a program, oldest first."""
    names = [row["run"] for row in list_runs(among) if row.get("program") == program]
    return names[:most][::-1]


def rebuild_index() -> None:
    """Forget the index, so that every journal is read again."""
    try:
        (home() / INDEX).unlink(missing_ok=True)
    except OSError as error:
        raise JournalError(f"cannot write to {home()}: {error.strerror}") from None


def _read_index() -> dict[str, dict[str, Any]]:
    try:
        index = json.loads((home() / INDEX).read_text())
    except (OSError, ValueError):
        return {}
    rows = index.items() if isinstance(index, dict) else ()
    return {name: row for name, row in rows if isinstance(row, dict) and row.get("run") == name and "state" in row}


def _describe(name: str) -> dict[str, Any]:
    try:
        events = read_events(runs_directory() / name)
    except JournalError as error:
        return {"run": name, "state": "unreadable", "error": error.message}
    start = start_of(events)
    row: dict[str, Any] = {
        "program": start.program,
        "strategy": start.strategy,
        "world": start.world,
        "jobs": start.jobs,
        "created": start.created,
    }
    last = events[-1]
    state = run_state(runs_directory() / name, last.state if isinstance(last, RunEnded) else None)
    if state in ("submitted", "open"):
        row["slurm_job"] = handed_to(events)
    return {"run": name, "state": state, **row}


def run_state(directory: Path, ended: str | None) -> str:
    """How a run stands that ended so, or (None) has not ended; `open` if its driver is out of sight."""
    if ended is not None:
        return "submitted" if ended == HANDED_ON else ended
    return {True: "running", False: "killed", None: "open"}[has_writer(directory)]
