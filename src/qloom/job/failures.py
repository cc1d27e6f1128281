"""What a program raised, as an error that names the user's own line and, for usual mistakes, what to write."""

from __future__ import annotations

import asyncio
import functools
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qloom.errors import InputError, JobError, JournalError, QloomError
from qloom.journal.content import CALL_HINT

_STANDARD = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("purelib", "platlib"))
_QLOOM = str(Path(__file__).resolve().parents[1])

AWAIT = "await the calls of a job: `await job.classical(...)`"
NO_AWAIT = "a synchronous program does not await the calls of its job: leave out `await`, or write `async def`"
RESULT = "ask the handle for what the call gave: `.result()`"
# Parts of what Python says if a call was not awaited, was awaited in a `def`, or its handle was taken for its result.
_MISTAKES = {
    "_asyncio.Task'": AWAIT,
    "await wasn't used with future": AWAIT,
    "can't be used in 'await' expression": NO_AWAIT,
    "cannot be called from a running event loop": NO_AWAIT,
    "'Handle'": RESULT,
}


def program_failed(failure: BaseException, job: str) -> QloomError:
    """The error of a job whose program raised; an error of qloom stays, and wrong input gets the line of its call."""
    if isinstance(failure, QloomError):
        line = _users_line(failure)
        if isinstance(failure, InputError) and not isinstance(failure, JournalError) and line not in failure.message:
            failure.message += line
        return failure
    what = f"the program raised {type(failure).__name__}: {failure}{_users_line(failure)}"
    return JobError(what, job=job, hint=_hint(failure))


def _users_line(failure: BaseException) -> str:
    frames = traceback.extract_tb(failure.__traceback__)
    users = [frame for frame in frames if not is_library(frame.filename)]
    return f" ({Path(users[-1].filename).name}, line {users[-1].lineno})" if users else ""


def users_traceback(failure: BaseException) -> str:
    """The traceback of what a program raised, with the user's own lines only."""
    shown = traceback.TracebackException.from_exception(failure)
    link: traceback.TracebackException | None = shown
    while link is not None:
        users = [frame for frame in link.stack if not is_library(frame.filename)]
        link.stack = traceback.StackSummary.from_list(users or link.stack)
        link = link.__cause__ or link.__context__
    return "".join(shown.format())


def _hint(failure: BaseException) -> str | None:
    if not isinstance(failure, TypeError | AttributeError | RuntimeError):
        return None
    return next((hint for mistake, hint in _MISTAKES.items() if mistake in str(failure)), None)


@functools.lru_cache(maxsize=1024)
def is_library(filename: str) -> bool:
    """Whether a file is not the user's own: the standard library, installed packages, qloom."""
    if filename.startswith("<") or "/site-packages/" in filename or "/dist-packages/" in filename:
        return True
    return str(Path(filename).resolve()).startswith((*_STANDARD, *_INSTALLED, _QLOOM))


@functools.lru_cache(maxsize=1024)
def is_standard_library(filename: str) -> bool:
    """Whether a file is part of Python itself."""
    path = str(Path(filename).resolve())
    return filename.startswith("<frozen") or (path.startswith(_STANDARD) and not path.startswith(_INSTALLED))


def not_a_task(value: Any, job: str) -> InputError:
    """The error of a classical call that was given something else."""
    is_many = isinstance(value, Iterable) and not isinstance(value, str)
    shown = f"a {type(value).__name__}" if is_many or isinstance(value, asyncio.Future) else repr(value)
    if isinstance(value, asyncio.Future):
        hint = CALL_HINT
    else:
        one_by_one = "pass tasks one by one: job.classical(*tasks)"
        hint = one_by_one if is_many else "use @task, call(function, ...) or command(...)"
    return InputError(f"expected a task, got {shown}", job=job, hint=hint)
