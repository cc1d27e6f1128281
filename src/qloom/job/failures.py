"""What a program raised, as an error that names the user's own line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from qloom.errors import JobError, QloomError

_LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).resolve().parents[1])}
)


def program_failed(failure: BaseException, job: str) -> QloomError:
    """The error of a job whose program raised; an error of qloom stays as it is."""
    if isinstance(failure, QloomError):
        return failure
    frames = traceback.extract_tb(failure.__traceback__)
    users = [frame for frame in frames if not _is_library(frame.filename)]
    where = f" ({Path(users[-1].filename).name}, line {users[-1].lineno})" if users else ""
    return JobError(f"the program raised {type(failure).__name__}: {failure}{where}", job=job)


def _is_library(filename: str) -> bool:
    return filename.startswith("<") or str(Path(filename).resolve()).startswith(_LIBRARIES)
