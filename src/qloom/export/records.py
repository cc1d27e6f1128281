"""What a step computed, left where the engine that runs it looks: one small file each, results named by content.

Nothing is recorded unless `$QLOOM_RECORDS` names a folder, which `qloom run --engine streamflow` sees to.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qloom.journal.content import task_key
from qloom.journal.results import ResultStore, write_atomically
from qloom.model import Task
from qloom.shared import Shared

FOLDER = "QLOOM_RECORDS"
STEP = "QLOOM_STEP"  # the engine's name for the step, set by the connectors of qloom-streamflow


@dataclass(frozen=True)
class Record:
    """One piece of work that a step did; the journal knows it by its content."""

    step: str
    kind: str  # "classical" | "quantum"
    key: str
    name: str
    began_us: int
    ended_us: int
    result: dict[str, Any]  # how it was kept


def perform(task: Task) -> Any:
    """Run a task of a program here, as a node would, and record it."""
    function: Any = getattr(task.function, "function", task.function)
    began_us = time.time_ns() // 1000
    result = function(*(value.value if isinstance(value, Shared) else value for value in task.args), **task.kwargs)
    record("classical", task_key(task), task.name, result, began_us)
    return result


def record(kind: str, key: str, name: str, result: Any, began_us: int) -> None:
    """Leave a record, if anybody looks for it."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    ended_us = time.time_ns() // 1000
    kept = ResultStore(Path(folder).parent / "results").keep(result)
    made = Record(os.environ.get(STEP, ""), kind, key, name, began_us, ended_us, kept)
    path = Path(folder) / f"{ended_us}-{os.getpid()}-{key}.json"
    write_atomically(path, json.dumps(asdict(made)).encode())


def read_records(folder: Path, known: dict[str, None]) -> list[Record]:
    """The records that are not known yet, oldest first."""
    names = sorted(path.name for path in folder.glob("[0-9]*.json") if path.name not in known)
    known.update(dict.fromkeys(names))
    return [Record(**json.loads((folder / name).read_bytes())) for name in names]
