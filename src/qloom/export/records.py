"""What a step computed, left where the engine that runs it looks: one small file each, results named by content.

Nothing is recorded unless `$QLOOM_RECORDS` names a folder, which `qloom run --engine streamflow` sees to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qloom.errors import JobError
from qloom.journal.content import payload_key, task_key
from qloom.journal.results import ResultStore, write_atomically
from qloom.model import CommandResult, Payload, Task
from qloom.shared import Shared
from qloom.worker import run_command

FOLDER = "QLOOM_RECORDS"
OUTPUT = "QLOOM_OUTPUT"  # the job's own work directory, where resumed runs and users look for files
STEP = "QLOOM_STEP"  # the engine's name for the step, set by the connectors of qloom-streamflow


@dataclass(frozen=True)
class Record:
    """One piece of work that a step did; the journal knows it by its content."""

    step: str
    key: str
    name: str
    began_us: int
    ended_us: int
    result: dict[str, Any]  # how it was kept


def is_recorded() -> bool:
    """Whether an engine of qloom's looks for records."""
    return bool(os.environ.get(FOLDER))


def perform(task: Task) -> Any:
    """Run a task of a program here, as a node would, and record it."""
    function: Any = getattr(task.function, "function", task.function)
    began_us = time.time_ns() // 1000
    result = function(*(value.value if isinstance(value, Shared) else value for value in task.args), **task.kwargs)
    record(task_key(task), task.name, result, began_us)
    return result


def perform_command(task: Task, outputs: Iterable[str], payload: Payload | None = None) -> int:
    """Run a command here, keep its files and record it: by what it is, or as the answer to a `payload`.

    Returns its exit code. Its output goes where the step's does, at once unless the end of it is to be recorded.
    """
    words, environment = list(task.command or ()), dict(task.env)
    if not is_recorded():
        return _run(words, environment)
    began_us = time.time_ns() // 1000
    result = CommandResult(**run_command(words, None, environment, list(task.capture)))
    print(result.stdout, end="")
    print(result.stderr, end="", file=sys.stderr)
    if result.exit_code == 0:
        if folder := os.environ.get(OUTPUT):
            _copy(outputs, Path(folder))
        record(task_key(task) if payload is None else payload_key(payload), task.name, result, began_us)
    return result.exit_code


def _run(words: list[str], environment: dict[str, str]) -> int:
    try:
        return subprocess.run(words, env={**os.environ, **environment}, check=False).returncode
    except OSError as error:
        raise JobError(f"cannot run {words[0]}: {error.strerror}") from None


def _copy(names: Iterable[str], folder: Path) -> None:
    for name in names:
        if Path(name).is_file():
            target = folder / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy(name, target)


def record(key: str, name: str, result: Any, began_us: int) -> None:
    """Leave a record, if anybody looks for it."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    ended_us = time.time_ns() // 1000
    kept = ResultStore(Path(folder).parent / "results").keep(result)
    made = Record(os.environ.get(STEP, ""), key, name, began_us, ended_us, kept)
    path = Path(folder) / f"{ended_us}-{os.getpid()}-{key}.json"
    write_atomically(path, json.dumps(asdict(made)).encode())


def read_records(folder: Path, known: dict[str, None]) -> list[Record]:
    """The records that are not known yet, oldest first."""
    names = sorted(path.name for path in folder.glob("[0-9]*.json") if path.name not in known)
    known.update(dict.fromkeys(names))
    return [Record(**json.loads((folder / name).read_bytes())) for name in names]
