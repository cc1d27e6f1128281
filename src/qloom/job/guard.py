"""What a synchronous program must not do in virtual time, where nothing outside of it can happen.

While a program runs there, `time.sleep`, `Thread.start` and `Future.result` in its own code, and connections of any
code, raise an error that says what to use. Threads and pauses of libraries are left alone: they compute, and no time
passes. In real time nothing is changed.
"""

from __future__ import annotations

import concurrent.futures
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from qloom.errors import InputError
from qloom.job.failures import is_library, is_standard_library

_installed: list[_Replaced] = []  # once for all programs that run now
_programs: list[Callable[[], bool]] = []  # for each of them: whether its code runs now


@contextmanager
def refuse_waits(program_runs: Callable[[], bool], names: dict[str, Any]) -> Iterator[None]:
    """Refuse them for as long as this lasts, to the code for which `program_runs` says yes.

    `names` are the globals of the program, which may have imported `sleep` itself.
    """
    sleep = time.sleep
    if not _programs:
        _installed.extend(_install())
    _programs.append(program_runs)
    imported = [name for name, value in names.items() if value is sleep]
    names.update(dict.fromkeys(imported, time.sleep))
    try:
        yield
    finally:
        names.update(dict.fromkeys(imported, sleep))
        _programs.remove(program_runs)
        while not _programs and _installed:
            _installed.pop().restore()


class _Replaced:
    """An attribute that is replaced for a while."""

    def __init__(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._owner, self._name = owner, name
        self._is_inherited = name not in vars(owner)
        self._original = getattr(owner, name)
        setattr(owner, name, make(self._original))

    def restore(self) -> None:
        if self._is_inherited:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)


def _install() -> Iterator[_Replaced]:
    yield _Replaced(time, "sleep", _sleep)
    yield _Replaced(threading.Thread, "start", _start)
    yield _Replaced(concurrent.futures.Future, "result", _result)
    yield _Replaced(socket.socket, "connect", _connect)
    yield _Replaced(socket.socket, "connect_ex", _connect)


def _sleep(sleep: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(seconds: float) -> None:
        if seconds > 0:
            hint = f"job.spend({seconds:g}) lets so much virtual time pass"
            _refuse("time.sleep() waits in real time, and time is virtual here", hint)
        sleep(seconds)

    return guarded


def _start(start: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: threading.Thread) -> None:
        hint = "job.start_classical(...) runs a task beside the program"
        _refuse("a thread cannot run beside a program in virtual time", hint)
        start(self)

    return guarded


def _result(result: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: concurrent.futures.Future[Any], timeout: float | None = None) -> Any:
        if not self.done():
            hint = "start work with job.start_classical(...) or job.start_quantum(...), and ask that for its result()"
            _refuse("Future.result() waits for something outside of virtual time", hint)
        return result(self, timeout)

    return guarded


def _connect(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, address: Any) -> Any:
        hint = "reach QPUs with job.quantum(...), or run the program with --world local"
        _refuse("a program cannot connect to anything in virtual time", hint, also_libraries=True)
        return connect(self, address)

    return guarded


def _refuse(what: str, hint: str, *, also_libraries: bool = False) -> None:
    """Raise, if the program runs, and if its own code or (with `also_libraries`) any code has made this call."""
    if not any(program_runs() for program_runs in _programs):
        return
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_standard_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or (is_library(frame.f_code.co_filename) and not also_libraries):
        return
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    where = "" if frame is None else f" ({frame.f_code.co_filename.rpartition('/')[2]}, line {frame.f_lineno})"
    raise InputError(f"{what}{where}", hint=hint)
