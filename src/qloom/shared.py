"""Data that many tasks share: written once, sent as a name, loaded once by each worker."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

from qloom.journal.content import digest
from qloom.journal.results import write_atomically
from qloom.private import read_private

_whole: dict[Path, None] = {}  # files that this process has written or read: others may be torn by a power cut


class Shared:
    """A reference to a value. A task that gets it as an argument sees the value itself."""

    def __init__(self, value: Any, content: str, path: Path | None) -> None:
        self.value = value
        self.digest = content
        self.path = path

    @property
    def __qloom_digest__(self) -> str:
        return self.digest

    def __repr__(self) -> str:
        return f"Shared({self.digest[:8]})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            return (_itself, (self.value,))
        return (load, (str(self.path),))  # so that it arrives at the worker as the value


def share(value: Any, directory: Path | None) -> Shared:
    """Write a value under the name of its content, unless it is there; `directory` None keeps it in memory."""
    content = digest(value)
    if directory is None:
        return Shared(value, content, None)
    is_array = type(value).__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject
    path = directory / f"{content}.{'npy' if is_array else 'pickle'}"
    if not (path.exists() and (path in _whole or _holds(path, content))):
        write_atomically(path, _npy(value) if is_array else pickle.dumps(value, protocol=5))
    _whole[path] = None
    return Shared(value, content, path)


def _holds(path: Path, content: str) -> bool:
    """Whether a file that an earlier process left is whole. To read it costs less than to write it again."""
    try:
        return digest(_read(str(path))) == content
    except Exception:  # a torn pickle may raise anything
        return False


@functools.lru_cache(maxsize=32)
def load(path: str) -> Any:
    """The value, read once."""
    return _read(path)


def _read(path: str) -> Any:
    """Arrays are mapped into memory, so that workers on one machine share the pages."""
    if path.endswith(".npy"):
        import numpy

        return numpy.load(path, mmap_mode="r")
    return pickle.loads(read_private(Path(path)))  # noqa: S301  written by the user's own driver


def _itself(value: Any) -> Any:
    return value


def _npy(value: Any) -> bytes:
    import io

    import numpy

    buffer = io.BytesIO()
    numpy.save(buffer, value, allow_pickle=False)
    return buffer.getvalue()
