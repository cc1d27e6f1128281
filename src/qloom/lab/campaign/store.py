"""Where a campaign is kept: what was asked for, the manifest, and one line for each cell that is done.

Lines are only ever appended, after the run that they name has ended: whoever is killed leaves either a whole cell or
none. A cell that was under way is run again from its start, because a resumed run would not be a measurement.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.journal.content import digest
from qloom.journal.file import FILE_NAME
from qloom.journal.home import home, runs_directory
from qloom.journal.results import make_directories, sync_directory, sync_file, write_atomically
from qloom.lab.campaign.model import Campaign
from qloom.lab.campaign.plans import Conditions
from qloom.lab.campaign.read import resolve
from qloom.version import __version__

ASKED, CELLS, CLAIMS, MANIFEST = "campaign.json", "cells.jsonl", "claims", "manifest.json"


@dataclass(frozen=True)
class CampaignRun:
    """A campaign as it is run this time."""

    name: str
    raw: dict[str, Any]
    conditions: Conditions = field(default_factory=Conditions)
    part: str | None = None  # of the published table that it was calibrated to for this; None: as in the file
    values: dict[str, float] = field(default_factory=dict)  # that came of it
    version: str = __version__

    def campaign(self) -> Campaign:
        """The checked campaign."""
        return resolve(self.raw, self.name, self.values)

    @property
    def directory(self) -> Path:
        """The same question has the same place, so that asking again goes on where it was."""
        return campaigns_directory() / f"{self.name}-{digest(json.dumps(asdict(self), sort_keys=True))[:8]}"


def campaigns_directory() -> Path:
    """The folder that holds one folder for each campaign."""
    return home() / "campaigns"


class CampaignStore:
    """The folder of one campaign."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def begin(self, asked: CampaignRun, manifest: dict[str, Any]) -> None:
        """Write down what was asked for, unless it is there."""
        try:
            make_directories(self.directory)
            for name, content in ((MANIFEST, manifest), (ASKED, asdict(asked))):
                if not (self.directory / name).exists():
                    write_atomically(self.directory / name, json.dumps(content, indent=1).encode(), durable=True)
            os.utime(self.directory / ASKED)  # `last` is the one that was run last
        except OSError as error:
            raise InputError(f"cannot write to {self.directory}: {error.strerror}") from None

    def asked(self) -> CampaignRun:
        """What was asked for."""
        values = self._read(ASKED)
        return CampaignRun(**{**values, "conditions": Conditions(**values["conditions"])})

    def manifest(self) -> dict[str, Any]:
        """Under which circumstances it was run."""
        return self._read(MANIFEST)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            read: dict[str, Any] = json.loads((self.directory / name).read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"{self.directory.name}: {name} cannot be read: {error}") from None
        return read

    def done(self) -> dict[tuple[str, int], str]:
        """Cell and repeat -> the run."""
        return {(entry["cell"], entry["repeat"]): entry["run"] for entry in self._cells()}

    def commits(self) -> list[str]:
        """The versions of the code that the cells were run with, in the order in which they came."""
        return list(dict.fromkeys(entry.get("commit", "unknown") for entry in self._cells()))

    def _cells(self) -> list[dict[str, Any]]:
        """Cells that are done; a torn last line counts as nothing, and so does a run that was removed."""
        try:
            lines = (self.directory / CELLS).read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if (runs_directory() / entry["run"] / FILE_NAME).exists()]

    @contextmanager
    def claim(self, cell: str, repeat: int) -> Iterator[bool]:
        """Whether this process may run a cell: several share a campaign, and a claim ends with its process."""
        claims = self.directory / CLAIMS
        claims.mkdir(mode=0o700, exist_ok=True)
        file = os.open(claims / digest(cell, repeat)[:16], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _is_locked(file) and (cell, repeat) not in self.done()
        finally:
            os.close(file)

    def add(self, cell: str, repeat: int, run: str, commit: str) -> None:
        """A cell is done: on the disk before this returns, and the journal of its run before that."""
        sync_file(runs_directory() / run / FILE_NAME)  # a run in virtual time syncs nothing itself
        for place in (runs_directory() / run, runs_directory(), home()):
            sync_directory(place)
        file = os.open(self.directory / CELLS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            whole = (self.directory / CELLS).read_bytes()
            os.ftruncate(file, whole.rfind(b"\n") + 1)  # a line that was torn by a crash
            line = {"cell": cell, "repeat": repeat, "run": run, "commit": commit}
            os.write(file, json.dumps(line).encode() + b"\n")
            os.fsync(file)
            sync_directory(self.directory)
        finally:
            os.close(file)


def _is_locked(file: int) -> bool:
    """Lock it, unless another process has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_store(text: str) -> CampaignStore:
    """A campaign that was run: `last`, its name (the newest one of that name), the name of its folder, or a path."""
    if (Path(text) / ASKED).is_file():
        return CampaignStore(Path(text))
    known = sorted(campaigns_directory().glob(f"*/{ASKED}"), key=lambda path: path.stat().st_mtime)
    names = {path.parent: ("last", path.parent.name, path.parent.name.rpartition("-")[0]) for path in known}
    found = [folder for folder, called in names.items() if text in called]
    if not found:
        what = "there is no campaign yet" if text == "last" else f"there is no campaign {text!r} that was run"
        raise InputError(what, hint="qloom campaign run NAME")
    return CampaignStore(found[-1])
