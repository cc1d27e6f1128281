"""The process of a synchronous program: `python -m qloom.job.program_main READ WRITE`, two open descriptors.

It receives a `ProgramCall`, calls the program with a `SyncJob` whose requests go to the driver, and sends what came
of it. Calls of other threads take their turn; in virtual time they are refused.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from contextlib import nullcontext
from typing import Any, BinaryIO

from qloom.errors import InputError
from qloom.job.failures import program_failed
from qloom.job.greenlets import FROM_THREAD, IN_THREAD
from qloom.job.guard import refuse_waits
from qloom.job.program_process import dumps, loads
from qloom.job.randomness import ProgramRandomness
from qloom.job.sync import SyncJob, call_program
from qloom.shared import Shared
from qloom.worker import ProgramFinder, read_message, write_message


class _Driver:
    """The way to the driver: one request at a time, each with its reply."""

    def __init__(self, replies: BinaryIO, requests: BinaryIO) -> None:
        self._replies = replies
        self._requests = requests
        self._turn = threading.Lock()
        self._shared: dict[str, Shared] = {}
        self.one_thread = False

    def ask(self, *request: Any) -> Any:
        """Send a request and wait for its reply; raises what the call raised."""
        if self.one_thread and not _in_main_thread():
            raise InputError(IN_THREAD, hint=FROM_THREAD)
        with self._turn:
            self.send(*request)
            result, error = self.receive()
        if error is not None:
            raise error
        return result

    def send(self, *message: Any) -> None:
        """Send a message."""
        write_message(self._requests, dumps(message))

    def receive(self) -> Any:
        """The next message."""
        data = read_message(self._replies)
        if data is None:
            os._exit(1)  # the driver has ended, and nobody is left to answer
        return loads(data, self._shared)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def main(read: int, write: int) -> None:
    """Run one program and send its result or its error."""
    driver = _Driver(os.fdopen(read, "rb"), os.fdopen(write, "wb"))
    path, files, message = driver.receive()
    sys.path[:] = path
    sys.meta_path.append(ProgramFinder(files))
    name = "?"
    ended: tuple[Any, BaseException | None]
    try:
        call = pickle.loads(message)  # noqa: S301  from the user's own driver
        name, driver.one_thread = call.name, call.virtual
        job = SyncJob(driver.ask, call.name, call.seed, call.output_dir)
        refusing = refuse_waits(_in_main_thread, call.function.__globals__) if call.virtual else nullcontext()
        with ProgramRandomness(call.seed), refusing:
            ended = (call_program(call.function, job, call.parameters), None)
    except BaseException as error:
        cancelled = isinstance(error, asyncio.CancelledError)
        ended = (None, error if cancelled else program_failed(error, name))
    sys.stdout.flush()
    driver.send("ended", *ended)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
