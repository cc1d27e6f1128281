"""Who writes a journal, in a file beside it: a file system may have no locks, or only for one host (localflock)."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from qloom.errors import JournalError
from qloom.identity import Process, own_process

FILE_NAME = "journal.owner"


def claim(directory: Path, *, is_locked: bool) -> None:
    """Become the one who writes; refuse if another may still do so."""
    path = directory / FILE_NAME
    if may_write(directory, is_locked=is_locked):
        owner = owner_of(directory)
        who = "another process" if owner is None else f"process {owner.pid} on {owner.host}"
        raise JournalError(
            f"{directory.name} may still be running: {who} writes its journal",
            hint=f"end that one first; if it is known to have ended, remove {path}",
        )
    forget(directory)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise JournalError(f"{directory.name} has just been resumed by another process") from None
    except OSError as error:
        raise JournalError(f"cannot write {path}: {error.strerror}") from None
    os.write(file, json.dumps(asdict(own_process())).encode())
    os.close(file)


def may_write(directory: Path, *, is_locked: bool) -> bool:
    """Whether somebody else may still write. If this process has the lock, then nobody on this host does."""
    path = directory / FILE_NAME
    if not path.exists():
        return False
    owner = owner_of(directory)
    if owner is None:  # cut short: nobody knows whose it is
        return not is_locked
    return not (is_locked and owner.host == own_process().host) and not owner.is_dead()


def release(directory: Path) -> None:
    """Let others write, if this process is the owner."""
    if owner_of(directory) == own_process():
        forget(directory)


def forget(directory: Path) -> None:
    """Let others write: the owner is known to have ended."""
    with suppress(OSError):
        (directory / FILE_NAME).unlink()


def owner_of(directory: Path) -> Process | None:
    """The process that writes, or wrote, the journal; None if that is not known."""
    with suppress(OSError, ValueError, TypeError):
        return Process(**json.loads((directory / FILE_NAME).read_bytes()))
    return None
