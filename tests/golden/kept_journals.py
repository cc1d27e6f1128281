"""Journals of real runs, one of each world and driver, as they were written when they were kept.

They are made once and never again: what was written before has to stay readable. The place of the program and the
names of the machine are taken out of them; `unpack` puts a place in.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from qloom.journal.file import FILE_NAME, read_events
from qloom.journal.history import read_history
from qloom.journal.results import ResultStore
from qloom.views.accounting import account
from tests.journals import as_lines

FOLDER = Path(__file__).parent / "journals"
FIGURES = FOLDER / "figures.json"
PLACE = "@here@"  # of the program, in a kept journal
KEPT = sorted(path.parent.name for path in FOLDER.glob(f"*/{FILE_NAME}"))
RESULT = [1000, 9, -1.5, 16, 25, 499500, 36, 49, True, 81]  # of every run


def unpack(name: str, home: Path) -> Path:
    """Put a journal into a home, as if it had been written there."""
    directory = home / "runs" / name
    shutil.copytree(FOLDER / name, directory)
    path = directory / FILE_NAME
    path.write_text(path.read_text().replace(PLACE, str(FOLDER)))
    return directory


def figures_of(directory: Path) -> dict[str, Any]:
    """What a journal says of its run: what was held, used and waited for, and what came out."""
    events = read_events(directory)
    done = [event for event in as_lines(events) if event["event"] == "job_ended" and event["state"] == "done"]
    store = ResultStore(directory / "results")
    return {**account(read_history(events)).as_dict(), "results": [store.load(event["result"]) for event in done]}


def kept_figures() -> dict[str, dict[str, Any]]:
    """What each journal said when it was kept."""
    figures: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text())
    return figures
