"""Files and directories that nobody else may change, in places where others can write too, such as /tmp.

What is read from them may run as code (pickles, configs of daemons) or decide who may do what (tokens), so each must
belong to this user or to root. A directory is opened once and checked through its descriptor, and names in it are
looked up relative to that descriptor: what was checked is what is used, whatever others do to the path meanwhile.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType

from qloom.errors import NotPrivate

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # without O_NONBLOCK, a planted FIFO would block its reader


class PrivateDirectory:
    """An open directory of this user or root, in which only files of theirs are read.

    `on_behalf_of` is another user who is trusted as well: root looks after the files of a service that way.
    """

    def __init__(self, descriptor: int, path: Path, on_behalf_of: int | None = None) -> None:
        self.descriptor, self.path = descriptor, path
        self._trusted = (os.geteuid(), 0) if on_behalf_of is None else (os.geteuid(), 0, on_behalf_of)

    @classmethod
    def open(cls, path: Path, *, make: bool = False, on_behalf_of: int | None = None) -> PrivateDirectory:
        """Open a directory, made if need be with mode 700; raises `NotPrivate` or `OSError`.

        What others may write to, but belongs to this user, is closed to them.
        """
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(str(path), None)
        return cls(_open_directory(path), path, on_behalf_of)._checked()

    def enter(self, name: str, *, make: bool = False) -> PrivateDirectory:
        """Open a directory in this one."""
        if make:
            _make(name, self.descriptor)
        path = self.path / name
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=self.descriptor)
        except OSError as error:
            raise _not_a(path, "directory", error) from None
        return PrivateDirectory(descriptor, path)._checked()

    def read(self, name: str) -> bytes:
        """The content of a file; raises `FileNotFoundError` if there is none."""
        with os.fdopen(self.open_file(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def require_own(self, name: str) -> None:
        """Refuse a file or directory of somebody else; raises `FileNotFoundError` if there is none."""
        found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            self.enter(name).close()
        else:
            os.close(self.open_file(name, os.O_RDONLY))

    def open_file(self, name: str, flags: int) -> int:
        """Open a file and check it; links are not followed, and a new file has mode 600."""
        path = self.path / name
        try:
            descriptor = os.open(name, flags | _FILE, 0o600, dir_fd=self.descriptor)
        except OSError as error:
            raise _not_a(path, "file", error) from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotPrivate(f"{path} is not a regular file", hint="remove it")
            self._require_owner(found, path)
            shut = not os.fstat(self.descriptor).st_mode & OTHERS_ENTER
            if found.st_mode & OTHERS_WRITE and not shut:
                raise NotPrivate(f"others can write to {path}", hint=f"look at what is in it, then chmod go-w {path}")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def write(self, name: str, data: bytes, *, owner: tuple[int, int] | None = None) -> None:
        """Replace a file as a whole, durably, with mode 600; `owner` is the user and group it is given to."""
        temporary = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        file = os.fdopen(os.open(temporary, flags, 0o600, dir_fd=self.descriptor), "wb")
        try:
            with file:
                file.write(data)
                file.flush()
                if owner is not None:
                    os.fchown(file.fileno(), *owner)
                os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            os.unlink(temporary, dir_fd=self.descriptor)
            raise
        os.fsync(self.descriptor)  # or a power cut could bring the file before back: a token that was revoked

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def __enter__(self) -> PrivateDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _checked(self) -> PrivateDirectory:
        try:
            found = os.fstat(self.descriptor)
            self._require_owner(found, self.path)
            if found.st_mode & OTHERS_WRITE and found.st_uid == os.geteuid():
                os.fchmod(self.descriptor, stat.S_IMODE(found.st_mode) & ~OTHERS_WRITE)
        except BaseException:
            self.close()
            raise
        return self

    def _require_owner(self, found: os.stat_result, path: Path) -> None:
        if found.st_uid not in self._trusted:
            raise NotPrivate(f"{path} belongs to another user", hint="use a directory of your own")


def read_private(path: Path) -> bytes:
    """The content of a file that nobody else can have written; raises `NotPrivate` or `OSError`."""
    with PrivateDirectory.open(path.parent) as directory:
        return directory.read(path.name)


def runtime_directory() -> Path | None:
    """$XDG_RUNTIME_DIR, if it is this user's alone: after `su` or `sudo -E` it is still somebody else's."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if not given:
        return None
    try:
        found = os.stat(given)
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & OTHERS_WRITE
    return Path(given) if own else None


def _make(name: str, within: int | None) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=within)
    except FileExistsError:
        pass


def _open_directory(path: Path, links: int = 40) -> int:
    """Open a directory; a link to it counts only if this user or root has made the link."""
    try:
        return os.open(path, _DIRECTORY)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not (path.is_symlink() and links):
            raise _not_a(path, "directory", error) from None
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(link).st_uid not in (os.geteuid(), 0):
            raise NotPrivate(f"{path} is a link that another user has made", hint="use a directory of your own")
        target = os.readlink("", dir_fd=link)
    finally:
        os.close(link)
    return _open_directory(path.parent / target, links - 1)


def _not_a(path: Path, kind: str, error: OSError) -> OSError | NotPrivate:
    """What opening something failed with: another type than expected is no accident."""
    wrong = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
    return NotPrivate(f"{path} is not a {kind}", hint="remove it") if error.errno in wrong else error
