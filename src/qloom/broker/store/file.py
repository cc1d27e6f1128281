"""The store's place on disk: one broker at a time, and never an empty store where a full one was.

A file beside the store, `broker.db.made`, says that a store was made here. If the store is gone while that file is
there, a broker that began with an empty one would deny all tasks that were accepted; so it does not start.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from qloom.broker.store.database import Database
from qloom.errors import InputError

NOTE = "A store was made here on {date}. A broker does not start if the store is gone while this file is here.\n"


@contextlib.contextmanager
def alone(store: Path) -> Iterator[None]:
    """Lock the store for this process: two brokers on it would give every task to the devices twice."""
    try:
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(store.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"cannot write to {store.parent}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise InputError(f"another broker uses the store {store}") from None
    try:
        yield
    finally:
        os.close(file)


def open_store(path: Path) -> Database:
    """The store at a path; a new one only if there has never been one."""
    if is_gone(path):
        raise InputError(
            f"the store {path} is gone: one was made here before",
            hint="restore it from a backup; to begin without its tasks and results: qloom broker init",
        )
    store = Database(path, make=not _marker(path).exists())
    _mark(path)
    return store


def make_store(path: Path) -> None:
    """Make an empty store where there is none."""
    with alone(path):
        if _has_content(path):
            raise InputError(f"there is a store {path} already", hint="move it away first")
        Database(path).close()
        _mark(path)


def is_gone(path: Path) -> bool:
    """Whether a store was made here and is missing or empty."""
    return _marker(path).exists() and not _has_content(path)


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"cannot open the store {path}: {error.strerror}") from None


def _marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.made")


def _mark(path: Path) -> None:
    """Only after the store was made: a start that fails before leaves nothing that stops the next."""
    if _marker(path).exists():
        return
    try:
        with os.fdopen(os.open(_marker(path), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(NOTE.format(date=time.strftime("%Y-%m-%d", time.gmtime())))
            file.flush()
            os.fsync(file.fileno())
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise InputError(f"cannot write to {path.parent}: {error.strerror}") from None
