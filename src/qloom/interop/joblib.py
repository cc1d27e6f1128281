"""A joblib backend on the nodes of a job: `with joblib.parallel_config("qloom"):` around code with `n_jobs`.

It is registered when a synchronous program begins in a process that has imported joblib; `job.joblib_backend()` gives
the object itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import joblib
from joblib.parallel import ParallelBackendBase, SequentialBackend

from qloom.errors import InputError
from qloom.interop.futures import JobExecutor, JobFuture, OpenFutures
from qloom.interop.transport import CURRENT_PROGRAM
from qloom.journal.content import ignore_content


class JoblibBackend(ParallelBackendBase):  # type: ignore[misc, unused-ignore]
    """Runs batches as tasks of the job of the program that uses it; `needs` are those of each task."""

    default_n_jobs = -1
    supports_retrieve_callback = False  # there is no thread to call back from: results are fetched by who waits
    supports_timeout = True

    def __init__(self, futures: OpenFutures | None = None, nesting_level: int | None = None, **needs: Any) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=needs.pop("inner_max_num_threads", None))
        if futures is None and (program := CURRENT_PROGRAM.get()) is not None:
            futures = program.open_futures()
        if futures is None:
            raise InputError(
                "the joblib backend of qloom works in a synchronous program only", hint="use it in def program(job)"
            )
        self._nodes = futures.calls.nodes
        self._executor = JobExecutor(futures, needs)
        self._open: list[JobFuture] = []

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches are out at once: as many as the job has nodes for -1. One stays in the program itself."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or n_jobs < 0:
            return max(self._nodes + 1 + (-1 if n_jobs is None else n_jobs), 2)
        return n_jobs

    def submit(self, func: Any, callback: Callable[[Any], None] | None = None) -> JobFuture:
        """Run a batch on a node."""
        first = func.items[0][0]
        name = getattr(first, "__name__", type(first).__name__)
        future = self._executor.submit_as(name, Batch(tuple(func.items)))
        self._open = [one for one in self._open if one is not future and not _has_ended(one)] + [future]
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result(self, out: JobFuture, timeout: float | None = None) -> Any:
        """Wait for a batch."""
        return out.result(timeout)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what has not ended."""
        for future in self._open:
            if not _has_ended(future):
                future.cancel()
        self._open = []

    def get_nested_backend(self) -> tuple[Any, Any]:
        """A task has the processors of its node to itself, and its own `Parallel` calls stay in its process."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


@dataclass(frozen=True)
class Batch:
    """Calls that share a task."""

    items: tuple[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], ...]

    def __call__(self) -> list[Any]:
        """Carry them out, on a node."""
        with joblib.parallel_config(backend=SequentialBackend()):
            return [function(*args, **kwargs) for function, args, kwargs in self.items]


def _has_ended(future: JobFuture) -> bool:
    return super(JobFuture, future).done()


joblib.register_parallel_backend("qloom", JoblibBackend)
ignore_content("sklearn.callback")  # what scikit-learn reports progress by has another id in every run
