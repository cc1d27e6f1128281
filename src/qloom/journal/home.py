"""Where runs are kept: private directories, an index that can be rebuilt, and `last`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from qloom.errors import JournalError
from qloom.journal.file import FILE_NAME, read_events
from qloom.journal.handed import HANDED_ON
from qloom.journal.results import write_atomically

INDEX = "index.json"


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
            runs_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            (path / "results").mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise JournalError(
                f"cannot write to {runs_directory()}: {error.strerror}",
                hint="set QLOOM_HOME to a directory you can write",
            ) from None
        return path
    raise JournalError(f"no free name for a run in {runs_directory()}")


def find_run(name: str) -> Path:
    """The directory of a run: `last`, its id, a unique start of its id, or a path."""
    if name == "last":
        names = run_names()
        if not names:
            raise JournalError(f"there is no run yet in {runs_directory()}", hint="make one with: qloom run PROGRAM")
        return runs_directory() / names[-1]
    path = Path(name)
    if (path / FILE_NAME).is_file():
        return path
    found = [run for run in run_names() if run.startswith(name)] if name else []
    if len(found) == 1:
        return runs_directory() / found[0]
    if found:
        raise JournalError(f"{name!r} stands for {len(found)} runs", hint=f"say which: {', '.join(found[:3])}, ...")
    raise JournalError(f"there is no run {name!r}", hint="qloom runs lists them")


def require_own(directory: Path) -> None:
    """Refuse a journal of somebody else: its results are pickles, which can run code when they are read."""
    for path in (directory, directory / FILE_NAME, directory / "results"):
        try:
            owner = path.stat().st_uid
        except FileNotFoundError:
            continue
        if owner != os.getuid():
            raise JournalError(f"{path} belongs to another user", hint="only your own runs can be replayed")


def run_names() -> list[str]:
    """The ids of all runs, oldest first."""
    try:
        return sorted(entry.name for entry in os.scandir(runs_directory()) if (Path(entry.path) / FILE_NAME).exists())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read {runs_directory()}: {error.strerror}") from None


def list_runs(limit: int | None = None) -> list[dict[str, Any]]:
    """One row a run, newest first; ended runs come from the index, which is mended on the way."""
    index = _read_index()
    names = run_names()
    rows = []
    for name in reversed(names[-limit:] if limit else names):
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
    start = events[0]
    row = {key: start.get(key) for key in ("program", "strategy", "world", "jobs", "created")}
    state = events[-1].get("state", "failed") if events[-1]["event"] == "run_ended" else "open"
    return {"run": name, "state": "submitted" if state == HANDED_ON else state, **row}
