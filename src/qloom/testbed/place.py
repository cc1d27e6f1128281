"""Where a testbed lives: a private directory with a short path, for unix sockets have little room."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from qloom.errors import InputError

LONGEST = 70  # a unix socket's path has 107 characters, and Slurm adds spool/c1/c1_123456.0 and more
PARTS = ("etc", "run", "log", "state", "spool", "tmp", "db", "broker")


def default_directory(name: str) -> Path:
    """In the user's runtime directory, or in one of theirs under the directory for temporary files."""
    return _root() / name


def _root() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(runtime) <= 30 and os.access(runtime, os.W_OK):
        return Path(runtime) / "qloom"
    return Path(tempfile.gettempdir()) / f"qloom-{os.getuid()}"


def make_root(directory: Path) -> None:
    """Make what a testbed lies in, if that is the usual place: private, and nobody else's."""
    if directory.parent == _root():
        _make_private(directory.parent)


def make(directory: Path) -> None:
    """Make the directory of a testbed, private and empty."""
    if len(str(directory)) > LONGEST:
        raise InputError(f"{directory} is too long a path for unix sockets", hint=f"at most {LONGEST} characters")
    _make_private(directory)
    if any(directory.iterdir()):
        raise InputError(f"{directory} is not empty", hint="choose another with --directory")
    for part in PARTS:
        (directory / part).mkdir(mode=0o700)


def _make_private(directory: Path) -> None:
    """One that somebody else could have laid there, to look into it, is refused."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise InputError(f"cannot make {directory}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InputError(f"{directory} belongs to somebody else", hint="choose another with --directory")
    directory.chmod(0o700)


def remove(directory: Path) -> None:
    """Remove the directory with all that is in it."""
    shutil.rmtree(directory, ignore_errors=True)


def cache_directory() -> Path:
    """Where things are kept that take long to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qloom"
