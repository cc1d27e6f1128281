"""A job as a synchronous program sees it: the calls of `Job`, without `await`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from qloom.job.greenlets import require_sync, wait
from qloom.job.job import Job
from qloom.model import Task
from qloom.shared import Shared

T = TypeVar("T")


class Handle(Generic[T]):
    """A call that was started. Ask for its result when you need it; a call that nobody asks for goes on."""

    def __init__(self, call: asyncio.Task[T]) -> None:
        self._call = call

    def result(self) -> T:
        """Wait for the result of the call, or raise what it raised."""
        return wait(self._call)

    def done(self) -> bool:
        """Whether the call has ended. Only a call of the job lets others go on: do not poll in a loop."""
        return self._call.done()

    def cancel(self) -> None:
        """End the call; its `result` raises `asyncio.CancelledError` then."""
        self._call.cancel()


class SyncJob:
    """One run of a synchronous program: `def program(job, ...)`."""

    def __init__(self, job: Job) -> None:
        self._whole_job = job

    @property
    def _job(self) -> Job:
        """The job, for a caller in the program's own thread: nothing is started by others."""
        require_sync()
        return self._whole_job

    @property
    def name(self) -> str:
        """The name of the job in its run."""
        return self._job.name

    @property
    def seed(self) -> int:
        """A seed for each job of a run."""
        return self._job.seed

    @property
    def output_dir(self) -> Path | None:
        """Where files of the program belong; None in virtual time."""
        return self._job.output_dir

    def classical(self, *tasks: Task) -> list[Any]:
        """Run tasks on the nodes of the job and wait for them; results come in the order of the tasks."""
        return wait(self._job.classical(*tasks))

    def quantum(self, payload: Any, **options: Any) -> Any:
        """Send a payload to a QPU and wait for its answer; options as of `Job.quantum`."""
        return wait(self._job.quantum(payload, **options))

    def start_classical(self, *tasks: Task) -> Handle[list[Any]]:
        """Start tasks; `.result()` waits for them."""
        return Handle(self._job.classical(*tasks))

    def start_quantum(self, payload: Any, **options: Any) -> Handle[Any]:
        """Send a payload to a QPU; `.result()` waits for its answer."""
        return Handle(self._job.quantum(payload, **options))

    @contextmanager
    def quantum_block(self) -> Iterator[None]:
        """Keep one hold of the QPU over all quantum tasks inside; it ends when all of them are done."""
        block = self._job.quantum_block()
        wait(block.__aenter__())
        try:
            yield
        except BaseException:
            if not wait(block.__aexit__(*sys.exc_info())):
                raise
        else:
            wait(block.__aexit__(None, None, None))

    def speculate(self, *tasks: Task) -> None:
        """Note work that may be of use later and depends on nothing that is awaited. It may never run."""
        self._job.speculate(*tasks)

    def share(self, value: Any) -> Shared:
        """Write data once that many tasks use; pass what is returned as an argument in its place."""
        return self._job.share(value)
