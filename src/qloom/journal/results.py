"""Results of tasks: small plain ones inside the journal, all others in files named by their content.

Files are pickles, so each is read only if it belongs to the user who reads it (`private.py`). In real time a
file is on the disk before the next durable event is written. After a power cut, an event that was not durable may
name a file that is missing or torn: its length and content are checked, and the work is run again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import pickle
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from qloom.answers import Answer, AtomCounts, Counts, Sample, Samples, executed
from qloom.errors import ResultLost
from qloom.journal.content import digest
from qloom.private import read_private

INLINE_CHARACTERS = 2000
SYNCS_AT_ONCE = 16
HINT = "qloom resume runs the work again"
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
    if kind in (Sample, Samples, Counts, AtomCounts):
        return _encode_answer(value)
    return None


def _encode_answer(value: Answer) -> Any | None:
    encoded = _encode_content(value)
    if encoded is None or value.calibration is None:
        return encoded
    return {"m": [encoded, value.calibration]}


def _encode_content(value: Any) -> Any | None:
    kind = type(value)
    if kind is Sample and _is_plain_sample(value):
        return {"s": [list(value.values.items()), value.energy]}
    if kind is Samples and _is_plain_sample(value):
        best = [list(value.values.items()), value.energy]
        drawn = [list(value.rows), list(value.energies), list(value.occurrences)]
        return {"q": [*best, *drawn, value.shots, value.vartype]}
    if kind is Counts:
        return {"c": [dict(value.counts), [list(one) for one in value.registers], value.shots]}
    if kind is AtomCounts:
        return {"a": [dict(value.counts), list(value.atoms), value.shots]}
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
        case "q":
            values, energy, rows, energies, occurrences, shots, vartype = content
            return Samples(dict(values), energy, tuple(rows), tuple(energies), tuple(occurrences), shots, vartype)
        case "c":
            counts, registers, shots = content
            return Counts(counts, tuple((name, size) for name, size in registers), shots)
        case "a":
            return AtomCounts(content[0], tuple(content[1]), content[2])
        case "m":
            return executed(decode_plain(content[0]), content[1])
        case _:
            return {key: decode_plain(item) for key, item in content.items()}


class ResultStore:
    """Keeps results; `directory` None keeps them in memory only, `durable` has them synced and checked."""

    def __init__(self, directory: Path | None, *, durable: bool = False) -> None:
        self._directory = directory
        self._durable = durable
        self._memory: dict[str, Any] = {}
        self._written: dict[str, None] = {}  # by this process: what an earlier one left may be torn
        self._threads: ThreadPoolExecutor | None = None
        self._syncing: list[Future[None]] = []

    def keep(self, value: Any) -> dict[str, Any]:
        """Store a result; what comes back goes into the journal."""
        plain = encode_plain(value)
        if plain is not None and (type(value) in _SHORT or len(json.dumps(plain)) <= INLINE_CHARACTERS):
            return {"plain": plain}
        if self._directory is None:
            name = digest(value)
            self._memory[name] = value
            return {"file": name}
        if not self._durable:
            name = digest(value)  # the same in every process, so that virtual journals repeat
            path = self._directory / name
            if not path.exists():
                write_atomically(path, _pickled(value))
            return {"file": name}
        data = _pickled(value)
        name = _checksum(data)
        if name not in self._written:
            write_atomically(self._directory / name, data)
            self._written[name] = None
            self._begin_sync(self._directory / name)
        return {"file": name, "bytes": len(data)}

    def _begin_sync(self, path: Path) -> None:
        """In a thread: the event loop goes on, and file systems put what is synced at once into one commit."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNCS_AT_ONCE, "qloom-sync")
        self._syncing.append(self._threads.submit(sync_file, path))

    def sync(self) -> None:
        """Wait until all files that were kept are on the disk, with their names."""
        if self._directory is not None and self._syncing:
            for synced in self._syncing:
                synced.result()
            sync_directory(self._directory)
            self._syncing = []

    def close(self) -> None:
        """Keep nothing more."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def has(self, kept: dict[str, Any]) -> bool:
        """Whether a result is there, as it was stored."""
        if "plain" in kept:
            return True
        if self._directory is None:
            return kept["file"] in self._memory
        try:
            self._read(kept)
        except ResultLost:
            return False
        return True

    def load(self, kept: dict[str, Any]) -> Any:
        """The result that was stored."""
        if "plain" in kept:
            return decode_plain(kept["plain"])
        if self._directory is None:
            return self._memory[kept["file"]]
        data = self._read(kept)
        try:
            return pickle.loads(data)  # noqa: S301  the user's own file
        except (EOFError, pickle.UnpicklingError):
            raise ResultLost(f"result {kept['file']} in {self._directory} is damaged", hint=HINT) from None

    def _read(self, kept: dict[str, Any]) -> bytes:
        name: str = kept["file"]
        assert self._directory is not None  # noqa: S101
        try:
            data = read_private(self._directory / name)
        except FileNotFoundError:
            raise ResultLost(f"result {name} is missing from {self._directory}", hint=HINT) from None
        if "bytes" in kept and (len(data) != kept["bytes"] or _checksum(data) != name):
            raise ResultLost(f"result {name} in {self._directory} is damaged", hint=HINT)
        return data


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value))


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write all of the file or nothing, even if the process is killed in the middle.

    A power cut may leave a part of it, unless it is `durable`: then all of it is on the disk before this returns.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        if durable:
            os.fsync(file)
    finally:
        os.close(file)
    temporary.replace(path)
    if durable:
        sync_directory(path.parent)


def make_directories(path: Path) -> None:
    """Make a private directory and its parents; the names of new ones are on the disk before this returns."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in missing:
        sync_directory(place.parent)


def sync_file(path: Path) -> None:
    """Have the content of a file on the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk, where the file system can promise that and we may ask for it."""
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM):
            raise
