"""The handle that `run` of a sampler or an estimator returns: asked, awaited or cancelled like Qiskit's own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from qiskit.primitives import BasePrimitiveJob, PrimitiveResult  # type: ignore[import, unused-ignore]
from qiskit.providers import JobStatus  # type: ignore[import, unused-ignore]

from qloom.answers import Counts
from qloom.interop.qiskit.transport import CircuitTransport
from qloom.interop.transport import StartedTask
from qloom.payloads.circuits import CircuitRows


@dataclass(frozen=True)
class PreparedPub:
    """The circuits of one pub, and how its result comes of their counts."""

    entries: Sequence[CircuitRows]
    shots: int
    finish: Callable[[list[Counts]], Any]


class QloomJob(BasePrimitiveJob):  # type: ignore[misc, type-arg, unused-ignore]
    """The tasks of one call of `run`. A synchronous program calls `.result()`, an asynchronous one awaits the job."""

    def __init__(self, transport: CircuitTransport, pubs: Sequence[PreparedPub]) -> None:
        self._pubs = pubs
        self._tasks: list[list[StartedTask]] = []  # of each pub
        self._result: Any = None
        try:
            for pub in pubs:
                self._tasks.append([])
                for task in transport.start(pub.entries, pub.shots) if pub.entries else ():
                    self._tasks[-1].append(task)  # one by one: what was started is cancelled if the next is refused
        except BaseException:  # half a job is of no use to anybody
            self.cancel()
            raise
        super().__init__(next(iter(self.tasks), "nothing"))

    @property
    def tasks(self) -> list[str]:
        """The ids of the tasks."""
        return [task.id for task in self._all()]

    def result(self) -> Any:
        """Wait for all tasks; raises `QuantumFailed` if one of them failed or was cancelled."""
        if self._result is None:
            results = []
            for pub, tasks in zip(self._pubs, self._tasks, strict=True):
                results.append(pub.finish([answer for task in tasks for answer in task.result()]))
            self._result = PrimitiveResult(results, metadata={"version": 2})
        return self._result

    def __await__(self) -> Generator[Any, None, Any]:
        for task in self._all():
            yield from task.__await__()
        return self.result()

    def _all(self) -> list[StartedTask]:
        return [task for tasks in self._tasks for task in tasks]

    def status(self) -> Any:
        """One of Qiskit's `JobStatus`, from the states of all tasks."""
        return overall_status([task.state() for task in self._all()])

    def cancel(self) -> bool:
        """Take all tasks back; whether there was one to take back."""
        return any([task.cancel() for task in self._all()])  # noqa: C419  all of them

    def done(self) -> bool:
        """Whether all tasks were run."""
        return bool(self.status() is JobStatus.DONE)

    def running(self) -> bool:
        """Whether the tasks have begun and are not over."""
        return bool(self.status() is JobStatus.RUNNING)

    def cancelled(self) -> bool:
        """Whether a task was cancelled."""
        return bool(self.status() is JobStatus.CANCELLED)

    def in_final_state(self) -> bool:
        """Whether nothing more will happen."""
        return self.status() in (JobStatus.DONE, JobStatus.CANCELLED, JobStatus.ERROR)


def overall_status(states: Sequence[str]) -> Any:
    """Qiskit's status of tasks in these states."""
    if any(state in ("failed", "expired") for state in states):
        return JobStatus.ERROR
    if "cancelled" in states:
        return JobStatus.CANCELLED
    if all(state == "done" for state in states):
        return JobStatus.DONE
    return JobStatus.QUEUED if all(state == "queued" for state in states) else JobStatus.RUNNING
