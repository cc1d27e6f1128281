"""Results of tasks: small plain ones inside the journal, all others in files named by their content.

Files are pickles, so they are only ever read back by the user who wrote them (`home.require_own`).
"""

from __future__ import annotations

import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

from qloom.errors import JournalError
from qloom.journal.content import digest
from qloom.model import Sample

INLINE_CHARACTERS = 2000
_EXACT = (type(None), bool, int, str)
_SHORT = (type(None), bool, int, float)


def encode_plain(value: Any) -> Any | None:
    """The value as JSON that reads back as exactly the same value, or None if JSON cannot do that."""
    kind = type(value)
    if kind in _EXACT:
        return None if kind is int and abs(value) >= 2**63 else {"v": value}
    if kind is float:
        return {"v": value} if value == value and abs(value) != float("inf") else None
    if kind in (list, tuple):
        items = [encode_plain(item) for item in value]
        return None if None in items else {"l" if kind is list else "t": items}
    if kind is dict and all(type(key) is str for key in value):
        entries = {key: encode_plain(item) for key, item in value.items()}
        return None if None in entries.values() else {"d": entries}
    if kind is Sample and _is_plain_sample(value):
        return {"s": [list(value.values.items()), value.energy]}
    return None


def _is_plain_sample(sample: Sample) -> bool:
    plain_values = all(type(key) in (int, str) and type(bit) is int for key, bit in sample.values.items())
    return plain_values and type(sample.energy) is float and math.isfinite(sample.energy)


def decode_plain(encoded: Any) -> Any:
    """The value that `encode_plain` was given."""
    ((tag, content),) = encoded.items()
    match tag:
        case "v":
            return content
        case "l":
            return [decode_plain(item) for item in content]
        case "t":
            return tuple(decode_plain(item) for item in content)
        case "s":
            return Sample(dict(content[0]), content[1])
        case _:
            return {key: decode_plain(item) for key, item in content.items()}


class ResultStore:
    """Keeps results; `directory` None keeps them in memory only."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._memory: dict[str, Any] = {}

    def keep(self, value: Any) -> dict[str, Any]:
        """Store a result; what comes back goes into the journal."""
        plain = encode_plain(value)
        if plain is not None and (type(value) in _SHORT or len(json.dumps(plain)) <= INLINE_CHARACTERS):
            return {"plain": plain}
        name = digest(value)
        if self._directory is None:
            self._memory[name] = value
            return {"file": name}
        path = self._directory / name
        if not path.exists():
            write_atomically(path, _pickled(value))
        return {"file": name}

    def load(self, kept: dict[str, Any]) -> Any:
        """The result that was stored."""
        if "plain" in kept:
            return decode_plain(kept["plain"])
        name = kept["file"]
        if self._directory is None:
            return self._memory[name]
        try:
            return pickle.loads((self._directory / name).read_bytes())  # noqa: S301  the user's own file
        except FileNotFoundError:
            raise JournalError(
                f"result {name} is missing from {self._directory}", hint="the run cannot be resumed; run it again"
            ) from None


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value))


def write_atomically(path: Path, data: bytes) -> None:
    """All of the file or nothing, also if the process is killed in the middle."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary.write_bytes(data)
    temporary.replace(path)
