"""What a power cut can leave of a directory: file operations are recorded, and what was not synced may be lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Op = tuple[Any, ...]  # what, path, and a path or the data


CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "sqlite3.connect",
)


class Recording:
    """Records the operations of this process on files below a directory, in their order.

    `unrecorded` has the changes that Python saw there and this did not: no cut would be tried for them.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.ops: list[Op] = []
        self.unrecorded: list[tuple[Any, ...]] = []
        self._open: dict[int, Path] = {}
        self._is_recording = False  # an operation that is recorded is under way
        names = ("open", "write", "ftruncate", "fsync", "replace", "unlink", "mkdir", "close")
        real = {name: getattr(os, name) for name in names}
        write_bytes = Path.write_bytes

        def do(name: str, *arguments: Any, **options: Any) -> Any:
            self._is_recording = True
            try:
                return real[name](*arguments, **options)
            finally:
                self._is_recording = False

        def recorded_open(path: Any, flags: int, *more: Any, **options: Any) -> int:
            is_new = not os.path.lexists(path)
            file: int = do("open", path, flags, *more, **options)
            if self._is_below(path):
                self._open[file] = Path(path)
                if is_new and flags & os.O_CREAT:
                    self.ops.append(("create", Path(path)))
            return file

        def recorded_write(file: int, data: bytes) -> int:
            if file in self._open:
                self.ops.append(("append", self._open[file], bytes(data)))
            return int(real["write"](file, data))

        def recorded_ftruncate(file: int, length: int) -> None:
            if file in self._open and os.fstat(file).st_size != length:
                self.ops.append(("truncate", self._open[file], length))
            do("ftruncate", file, length)

        def recorded_fsync(file: int) -> None:
            real["fsync"](file)
            if file in self._open:
                self.ops.append(("sync", self._open[file]))

        def recorded_replace(source: Any, target: Any, **options: Any) -> None:
            do("replace", source, target, **options)
            if self._is_below(target):
                self.ops.append(("rename", Path(source), Path(target)))

        def recorded_unlink(path: Any, **options: Any) -> None:
            do("unlink", path, **options)
            if self._is_below(path):
                self.ops.append(("unlink", Path(path)))

        def recorded_mkdir(path: Any, *more: Any, **options: Any) -> None:
            do("mkdir", path, *more, **options)
            if self._is_below(path):
                self.ops.append(("mkdir", Path(path)))

        def recorded_close(file: int) -> None:
            self._open.pop(file, None)
            real["close"](file)

        def recorded_write_bytes(path: Path, data: bytes) -> int:
            if self._is_below(path):
                self.ops += [("create", path), ("append", path, bytes(data))]
            self._is_recording = True
            try:
                return write_bytes(path, data)
            finally:
                self._is_recording = False

        for name, recorded in (
            ("open", recorded_open), ("write", recorded_write), ("fsync", recorded_fsync),
            ("replace", recorded_replace), ("unlink", recorded_unlink), ("mkdir", recorded_mkdir),
            ("close", recorded_close), ("ftruncate", recorded_ftruncate),
        ):  # fmt: skip
            patch.setattr(os, name, recorded)
        patch.setattr(Path, "write_bytes", recorded_write_bytes)
        patch.setattr(Path, "write_text", lambda path, text, **_: recorded_write_bytes(path, text.encode()))
        is_current = lambda: os.open is recorded_open  # noqa: E731  the hook cannot be removed
        sys.addaudithook(lambda event, arguments: self._look_at(event, arguments) if is_current() else None)

    def _look_at(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Find changes that are made in a way that is not recorded."""
        if self._is_recording or not arguments:
            return
        path = self._open.get(arguments[0]) if isinstance(arguments[0], int) else arguments[0]
        is_change = event in CHANGES or (
            event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if is_change and self._is_below(path):
            self.unrecorded.append((event, *arguments))

    def _is_below(self, path: Any) -> bool:
        return isinstance(path, str | Path) and Path(path).is_relative_to(self.root)


@dataclass
class _File:
    data: bytes = b""
    synced: bytes = b""


@dataclass
class _Disk:
    """Names and contents as the process sees them, and those that are on the disk for certain."""

    names: dict[Path, _File | None] = field(default_factory=dict)  # None: a directory
    synced: dict[Path, _File | None] = field(default_factory=dict)

    def do(self, op: Op) -> None:
        match op:
            case ("create", path):
                self.names[path] = _File()
            case ("mkdir", path):
                self.names[path] = None
            case ("append", path, data):
                file = self.names[path]
                assert file is not None
                file.data += data
            case ("truncate", path, length):
                file = self.names[path]
                assert file is not None
                file.data = file.data[:length]
            case ("rename", source, target):
                self.names[target] = self.names.pop(source)
            case ("unlink", path):
                del self.names[path]
            case ("sync", path):
                file = self.names.get(path)
                if file is not None:
                    file.synced = file.data
                else:  # a directory: its names
                    for known in [known for known in self.synced if known.parent == path]:
                        del self.synced[known]
                    self.synced.update((name, made) for name, made in self.names.items() if name.parent == path)


Left = dict[Path, bytes | None]  # None: a directory


def states(ops: list[Op], journal: str) -> Iterator[tuple[int, Left]]:
    """After each operation, what a cut can leave: all, a part or what was synced, of the journal and of others.

    What was left already is left again where more of the journal is promised by now.
    """
    disk, seen, promised = _Disk(), {}, 0
    for number, op in enumerate(ops):
        disk.do(op)
        promised += op[0] == "sync" and op[1].name == journal
        for of_journal in ("synced", "all", "torn"):
            for names, of_others in (
                ("synced", "synced"),
                ("both", "all"),  # a name that was changed or removed may be there still
                ("all", "synced"),
                ("all", "torn"),
                ("all", "every other"),
                ("all", "all"),
            ):
                left = _left(disk, journal, of_journal, names, of_others)
                files = tuple(sorted((str(path), data) for path, data in left.items() if data is not None))
                key = (files, len(left), promised)
                if key not in seen:
                    seen[key] = None
                    yield number, left


def _left(disk: _Disk, journal: str, of_journal: str, of_names: str, of_others: str) -> Left:
    names = {"synced": disk.synced, "all": disk.names, "both": {**disk.synced, **disk.names}}[of_names]
    left: Left = {}
    for place, (path, file) in enumerate(names.items()):
        if file is None:
            left[path] = None
            continue
        kept = of_journal if path.name == journal else of_others
        if kept == "every other":
            kept = "all" if place % 2 else "synced"
        if len(file.data) < len(file.synced) or kept == "synced":
            left[path] = file.synced
        else:
            more = file.data[len(file.synced) :]
            left[path] = file.synced + (more if kept == "all" else more[: len(more) // 2])
    whole: Left = {}
    for path, data in left.items():  # what lies in a directory that is not there is not there
        if all(parent not in disk.names or parent in left for parent in path.parents):
            whole[path] = data
    return whole


def put(left: Left, root: Path, target: Path) -> None:
    """Lay out what was left of `root` below `target`."""
    target.mkdir(parents=True)
    for path, data in sorted(left.items()):
        place = target / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(data)
