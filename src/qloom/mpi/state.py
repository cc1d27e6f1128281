"""The state of an elastic program: saved whole or not at all, restored on any number of ranks.

A plain value is the same on all ranks, and rank 0's is saved. A split array is cut along its first axis; each rank
saves the piece that it has and, when restored, reads its new block out of whichever pieces hold it.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from qloom.errors import InputError, JobError
from qloom.journal.results import make_directories, sync_directory, write_atomically
from qloom.private import read_private

MANIFEST, VALUES, CURRENT = "manifest.json", "values.pickle", "current"


@dataclass(frozen=True)
class SplitArray:
    """An array that is cut into one block per rank; `make(first, last)` makes the block of those rows."""

    length: int
    make: Callable[[int, int], Any]


def block(length: int, rank: int, size: int) -> tuple[int, int]:
    """The rows of a split array that a rank has: first, and one past the last."""
    return length * rank // size, length * (rank + 1) // size


class SavedState:
    """Registered state and its place on disk."""

    def __init__(self, comm: Any, directory: Path | None) -> None:
        self._comm = comm
        self._directory = directory
        self._split: list[str] = []
        self.values = SimpleNamespace()

    def register(self, initial: dict[str, Any]) -> None:
        """Take the saved values, or the initial ones where nothing was saved. Collective."""
        rank, size = self._comm.rank, self._comm.size
        self._split = [name for name, value in initial.items() if isinstance(value, SplitArray)]
        save, manifest, plain = self._comm.bcast(self._find() if rank == 0 else None)
        if manifest is None:
            for name, value in initial.items():
                made = value.make(*block(value.length, rank, size)) if isinstance(value, SplitArray) else value
                setattr(self.values, name, made)
            return
        saved = sorted([*plain, *manifest["split"]])
        if saved != sorted(initial):
            raise InputError(
                f"{save} holds {', '.join(saved)} and the program registers {', '.join(sorted(initial))}",
                hint="remove it to start anew",
            )
        for name in initial:
            lengths = manifest["split"].get(name)
            setattr(self.values, name, plain[name] if lengths is None else self._restore(save, name, lengths))

    def save(self) -> None:
        """Write everything; the previous save counts until the new one is whole on all ranks. Collective."""
        if self._directory is None:
            return
        comm = self._comm
        save: Path = comm.bcast(self._new_save() if comm.rank == 0 else None)
        problem = None
        try:
            self._write_pieces(save)
        except OSError as error:
            problem = f"rank {comm.rank} cannot save its state: {error}"
        lengths = {name: comm.gather(len(getattr(self.values, name))) for name in self._split}
        problems = [text for text in comm.allgather(problem) if text]
        if problems:
            raise JobError(problems[0], hint="the state saved before is still whole")
        if comm.rank == 0:
            write_atomically(
                save / MANIFEST, json.dumps({"ranks": comm.size, "split": lengths}).encode(), durable=True
            )
            sync_directory(self._directory)
            write_atomically(self._directory / CURRENT, save.name.encode(), durable=True)
            self._remove_all_but(save)
        comm.Barrier()

    def _find(self) -> tuple[Path | None, dict[str, Any] | None, dict[str, Any]]:
        if self._directory is None or not (self._directory / CURRENT).exists():
            return None, None, {}
        save = self._directory / read_private(self._directory / CURRENT).decode()
        manifest = json.loads(read_private(save / MANIFEST))
        return save, manifest, pickle.loads(read_private(save / VALUES))  # noqa: S301  the user's own

    def _restore(self, save: Path, name: str, lengths: list[int]) -> Any:
        import numpy

        first, last = block(sum(lengths), self._comm.rank, self._comm.size)
        parts: list[Any] = []
        start = 0
        for rank, length in enumerate(lengths):
            low, high = max(first, start), min(last, start + length)
            if low < high or (not parts and rank == len(lengths) - 1):
                piece = numpy.load(save / f"{name}.{rank}.npy", mmap_mode="r" if length else None)
                parts.append(piece[max(0, low - start) : max(0, high - start)])
            start += length
        return numpy.concatenate(parts)

    def _new_save(self) -> Path:
        assert self._directory is not None  # noqa: S101  the caller has looked
        make_directories(self._directory)
        numbers = [int(path.name.partition("-")[2]) for path in self._directory.glob("save-*")]
        save = self._directory / f"save-{max(numbers, default=0) + 1:06d}"
        save.mkdir(mode=0o700)
        return save

    def _write_pieces(self, save: Path) -> None:
        import numpy

        for name in self._split:
            with (save / f"{name}.{self._comm.rank}.npy").open("wb") as file:
                numpy.save(file, numpy.asarray(getattr(self.values, name)), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        if self._comm.rank == 0:
            plain = {name: value for name, value in vars(self.values).items() if name not in self._split}
            with (save / VALUES).open("wb") as file:
                pickle.dump(plain, file)
                file.flush()
                os.fsync(file.fileno())

    def _remove_all_but(self, save: Path) -> None:
        for other in save.parent.glob("save-*"):
            if other != save:
                shutil.rmtree(other, ignore_errors=True)
