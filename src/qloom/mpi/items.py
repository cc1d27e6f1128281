"""Work items for the rank that speaks to the QPU, and their results: the same over one world and over two.

An item is any value that can be pickled. Each has a tag of its own, so that several can be out at once and their
results be taken in any order. Every wait ends: polls back off, since ranks may share cores, and a watchdog ends MPI
calls that have no timeout.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from qloom.errors import JobError, QuantumFailed

T = TypeVar("T")
FIRST_S, LONGEST_S = 0.0001, 0.01
FORWARD_S = 0.5  # a launcher drops what it has not passed on yet when it has to abort
STOP, FIRST_ITEM, LAST_ITEM = 1, 2, 32767  # tags: every MPI has at least these


class Pending:
    """An item that is out."""

    def __init__(self, link: QpuLink, tag: int, sending: Any) -> None:
        self._link = link
        self._tag = tag
        self._sending = sending
        self._answer: tuple[bool, Any] | None = None

    def done(self) -> bool:
        """Whether the result is here; takes it in if it is. Never waits."""
        return self._look() is not None

    def result(self, within_s: float | None = None) -> Any:
        """The result; waits for it, for at most `within_s`."""
        well, content = wait_for(self._look, within_s, "the result of the quantum component")
        if not well:
            raise QuantumFailed(f"the quantum component {content}")
        return content

    def _look(self) -> tuple[bool, Any] | None:
        """A result may be of any size, so it is received when it is announced, into a buffer that fits."""
        if self._answer is None:
            message = self._link.comm.improbe(source=self._link.qpu_rank, tag=self._tag)
            if message is not None:
                self._answer = message.recv()
                self._sending.wait()
        return self._answer


class QpuLink:
    """The classical side: hands items out and goes on working."""

    def __init__(self, comm: Any, qpu_rank: int) -> None:
        self.comm = comm
        self.qpu_rank = qpu_rank
        self._next = FIRST_ITEM

    def submit(self, item: Any) -> Pending:
        """Send an item and return at once."""
        tag = self._next
        self._next = FIRST_ITEM if tag == LAST_ITEM else tag + 1
        return Pending(self, tag, self.comm.isend(item, dest=self.qpu_rank, tag=tag))

    def stop(self) -> None:
        """Announce to the quantum side that no more items come from this rank."""
        self.comm.send(None, dest=self.qpu_rank, tag=STOP)


def serve_items(comm: Any, clients: int, execute: Callable[[Any], Any], patience_s: float | None = None) -> int:
    """The quantum side: execute items until all clients have stopped; returns how many there were.

    If none of them says anything for `patience_s`, they are given up, so that the QPU is not held for nobody.
    """
    from mpi4py import MPI

    status, answers = MPI.Status(), []

    def look() -> Any:
        return comm.improbe(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)

    while clients > 0:
        message = wait_for(look, patience_s, "the next work item")
        source, tag = status.Get_source(), status.Get_tag()
        item = message.recv()
        if tag == STOP:
            clients -= 1
            continue
        try:
            answer = (True, execute(item))
        except Exception as error:
            answer = (False, f"raised {type(error).__name__}: {error}")
        answers.append(comm.isend(answer, dest=source, tag=tag))  # taken when the classical side gets round to it
    MPI.Request.waitall(answers)
    return len(answers)


# Waiting


def wait_for(look: Callable[[], T | None], within_s: float | None, what: str) -> T:
    """What `look` returns as soon as it is not None; `JobError` if that takes longer than `within_s`."""
    until = None if within_s is None else time.monotonic() + within_s
    pause_s = FIRST_S
    while (found := look()) is None:
        if until is not None and time.monotonic() > until:
            raise JobError(f"{what} did not come within {within_s:g} s")
        time.sleep(pause_s)
        pause_s = min(LONGEST_S, pause_s * 2)
    return found


@contextmanager
def watchdog(within_s: float, what: str) -> Iterator[None]:
    """End all ranks if the body takes longer: a blocking MPI call cannot be called off, only ended with its world."""

    def bark() -> None:
        from mpi4py import MPI

        print(f"qloom: {what} did not end within {within_s:g} s", file=sys.stderr, flush=True)
        time.sleep(FORWARD_S)
        MPI.COMM_WORLD.Abort(1)

    timer = threading.Timer(within_s, bark)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
