"""Where a testbed lives: a private directory with a short path, for unix sockets have little room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from qloom.errors import InputError, NotPrivate
from qloom.private import PrivateDirectory, runtime_directory

LONGEST = 70  # a unix socket's path has 107 characters, and Slurm adds spool/c1/c1_123456.0 and more
PARTS = ("etc", "run", "log", "state", "spool", "tmp", "db", "broker")
ELSEWHERE = "choose another with --directory"


def default_directory(name: str) -> Path:
    """In the user's runtime directory, or in one of theirs under the directory for temporary files."""
    return _root() / name


def _root() -> Path:
    runtime = runtime_directory()
    if runtime is not None and len(str(runtime)) <= 30:
        return runtime / "qloom"
    return Path(tempfile.gettempdir()) / f"qloom-{os.getuid()}"


def open_place(directory: Path, *, make: bool = False) -> PrivateDirectory:
    """The directory of a testbed, and what it lies in where that is the usual place: nobody else's, and private.

    One that somebody else has laid there is refused: whoever wrote the files of a testbed decides what is run.
    """
    try:
        if directory.parent != _root():
            return _private(PrivateDirectory.open(directory, make=make))
        with _private(PrivateDirectory.open(directory.parent, make=make)) as root:
            return _private(root.enter(directory.name, make=make))
    except NotPrivate as error:
        raise NotPrivate(error.message, hint=ELSEWHERE) from None


def require_private(directory: Path) -> None:
    """Refuse a directory that somebody else has made; one that is not there is no mistake."""
    try:
        open_place(directory).close()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"cannot read {directory}: {error.strerror}") from None


def make_root(directory: Path) -> None:
    """Make what a testbed lies in, if that is the usual place."""
    if directory.parent == _root():
        try:
            _private(PrivateDirectory.open(directory.parent, make=True)).close()
        except NotPrivate as error:
            raise NotPrivate(error.message, hint=ELSEWHERE) from None
        except OSError as error:
            raise InputError(f"cannot make {directory.parent}: {error.strerror}") from None


def make(directory: Path) -> None:
    """Make the directory of a testbed, private and empty."""
    if len(str(directory)) > LONGEST:
        raise InputError(f"{directory} is too long a path for unix sockets", hint=f"at most {LONGEST} characters")
    try:
        with open_place(directory, make=True) as place:
            if os.listdir(place.descriptor):
                raise InputError(f"{directory} is not empty", hint=ELSEWHERE)
            for part in PARTS:
                os.mkdir(part, 0o700, dir_fd=place.descriptor)
    except OSError as error:
        raise InputError(f"cannot make {directory}: {error.strerror}") from None


def _private(directory: PrivateDirectory) -> PrivateDirectory:
    """Only this user may look into it: there are keys. Root's own is as good as ours, but cannot be changed."""
    if os.fstat(directory.descriptor).st_uid == os.geteuid():
        os.fchmod(directory.descriptor, 0o700)
    return directory


def remove(directory: Path) -> None:
    """Remove the directory with all that is in it."""
    shutil.rmtree(directory, ignore_errors=True)


def cache_directory() -> Path:
    """Where things are kept that take long to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qloom"
