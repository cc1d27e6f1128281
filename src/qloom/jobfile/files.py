"""The files between the phases of one job.

What the program itself reads comes from the results of tasks, hence from the journal; the disk follows. So a
resumed run, or one in virtual time, takes the same path as the run that was recorded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from qloom.errors import InputError, JobError
from qloom.jobfile.read import input_problem
from qloom.journal.results import write_atomically
from qloom.model import CommandResult

NO_DIRECTORY = "(no work directory: a job file cannot run with in_memory on real nodes)"


class WorkDirectory(str):
    """Where commands run. All work directories are one to the journal: a task is not known by where it ran."""

    __slots__ = ()
    __qloom_digest__ = "work directory of a job file"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # workers need not import this module


class WorkFiles:
    """Files in the work directory; `directory` None (virtual time): nothing is written."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = None if directory is None else directory.resolve()
        self._contents: dict[str, bytes] = {}
        self.cwd = WorkDirectory(self._directory or NO_DIRECTORY)

    def copy_inputs(self, source: Path, names: Iterable[str], read: Iterable[str]) -> None:
        """Put input files in place; the content of those in `read` is remembered."""
        wanted = list(read)
        for name in names:
            if problem := input_problem(source, name):
                raise InputError(f"files: {problem}")
            try:
                if name in wanted:
                    self._contents[name] = (source / name).read_bytes()
                if self._directory is not None:
                    _copy(source / name, self._directory / name)
            except OSError as error:
                raise InputError(f"cannot copy {source / name}: {error.strerror}") from None

    def content(self, name: str) -> bytes | None:
        """What a file holds; None if that is not known, because in virtual time its command was not run."""
        if name not in self._contents and self._directory is not None:
            raise JobError(f"{name} is needed and no phase has made it", hint="see the outputs of the phases")
        return self._contents.get(name)

    def put(self, name: str, content: bytes | None) -> None:
        """Note what a file holds, and see to it that the disk agrees."""
        if content is None:
            self._contents.pop(name, None)
            return
        self._contents[name] = content
        if self._directory is not None:
            path = self._directory / name
            if not path.is_file() or path.read_bytes() != content:
                write_atomically(path, content)

    def take(self, task: str, names: Iterable[str], result: CommandResult) -> None:
        """Note the files that a command handed over."""
        for name in names:
            if name not in result.files and self._directory is not None:
                raise JobError(f"task {task} did not make {name}", hint="its outputs say that it does")
            self.put(name, result.files.get(name))


def _copy(origin: Path, target: Path) -> None:
    """All of the file or nothing; a resumed job keeps what it has, which commands may have changed."""
    if target.exists():
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy(origin, temporary)
    temporary.replace(target)
