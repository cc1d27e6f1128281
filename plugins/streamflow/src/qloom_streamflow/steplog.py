"""What happens to steps, as JSON lines: when each asked for its place, got it and ended, and where that was."""

from __future__ import annotations

import json
import os
import time
from typing import Any


class StepLog:
    """Appends to a file; `path` None writes nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def write(self, event: str, step: str, *, at_us: int | None = None, **fields: Any) -> None:
        """One event of a step; a line is written by a single call, so that several connectors can share the file."""
        if self._path is None:
            return
        line = {"at_us": at_us or time.time_ns() // 1000, "event": event, "step": step}
        line.update((name, value) for name, value in fields.items() if value is not None)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)
