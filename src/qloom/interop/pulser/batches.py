"""Batches and jobs of Pulser in terms of tasks.

A batch is its tasks. Unless it was opened, its id holds theirs, so that results can be fetched from another process.
An open batch holds a device until it is closed. This module knows neither jobs nor brokers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pulser.backend.remote import BatchStatus, JobStatus, RemoteConnection, RemoteResults, RemoteResultsError

from qloom.errors import InputError
from qloom.interop.transport import FINAL

STATUS = {
    "queued": JobStatus.PENDING,
    "done": JobStatus.DONE,
    "failed": JobStatus.ERROR,
    "expired": JobStatus.ERROR,
    "cancelled": JobStatus.CANCELED,
}


class SequenceConnection(RemoteConnection):  # type: ignore[misc, unused-ignore]
    """What Pulser asks of a connection, in terms of tasks; `QloomConnection` and `JobConnection` have the tasks."""

    def __init__(self, default_runs: int) -> None:
        self._runs = default_runs
        self._batches: dict[str, list[str]] = {}  # tasks of the batches that were opened here

    def submit(
        self, sequence: Any, wait: bool = False, open: bool = False, batch_id: str | None = None, **kwargs: Any
    ) -> Any:
        """Queue a task for each of `job_params`; with `open` and none of them, only hold the device."""
        if open and batch_id is None:
            batch_id = self._open()
            self._batches[batch_id] = []
        params: list[dict[str, Any]] = kwargs.get("job_params") or ([] if open else [{}])
        ready = [(_build(sequence, one), self._runs if one.get("runs") is None else one["runs"]) for one in params]
        if batch_id is not None and batch_id not in self._batches:
            raise InputError(f"{batch_id} is no open batch of this connection")
        tasks: list[str] = []
        try:
            for built, runs in ready:
                tasks.append(self._send(built, runs, batch_id))
        except BaseException:  # half of them are of no use to anybody
            for task in tasks:
                self._take_back(task)
            raise
        if batch_id is not None:
            self._batches[batch_id] += tasks
        if wait:
            for task in tasks:
                self._wait(task)
        if batch_id is None:
            return RemoteResults("+".join(tasks), self)
        return RemoteResults(batch_id, self, job_ids=tasks or None)

    def cancel(self, batch_id: str) -> None:
        """Take the tasks of a batch back."""
        for task in self._get_job_ids(batch_id):
            self._take_back(task)

    def close(self) -> None:
        """Let go of what the connection has opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    # Tasks

    @abstractmethod
    def _open(self) -> str:
        """Hold a device over several tasks; returns the id of the batch."""

    @abstractmethod
    def _close(self, batch_id: str) -> None:
        """Give the device back."""

    @abstractmethod
    def _send(self, sequence: Any, runs: int, batch_id: str | None) -> str:
        """Start a task; returns its id."""

    @abstractmethod
    def _state(self, task: str) -> tuple[str, str]:
        """The state of a task, and what is to be said of it."""

    @abstractmethod
    def _results(self, task: str) -> Any:
        """The results of a task that is done."""

    @abstractmethod
    def _wait(self, task: str) -> None:
        """Wait until a task is over."""

    @abstractmethod
    def _take_back(self, task: str) -> None:
        """End a task."""

    # What Pulser asks for

    def _get_job_ids(self, batch_id: str) -> list[str]:
        return list(self._batches[batch_id]) if batch_id in self._batches else batch_id.split("+")

    def _fetch_result(self, batch_id: str, job_ids: list[str] | None) -> Sequence[Any]:
        wanted = job_ids if job_ids is not None else self._get_job_ids(batch_id)
        for task in wanted:
            state, reason = self._state(task)
            if state != "done":
                raise RemoteResultsError(f"job {task} is {state}" + (f": {reason}" if reason else ""))
        return [self._results(task) for task in wanted]

    def _query_job_progress(self, batch_id: str) -> Mapping[str, tuple[Any, Any]]:
        found: dict[str, tuple[Any, Any]] = {}
        for task in self._get_job_ids(batch_id):
            status = STATUS.get(self._state(task)[0], JobStatus.RUNNING)
            found[task] = (status, self._results(task) if status is JobStatus.DONE else None)
        return found

    def _get_batch_status(self, batch_id: str) -> Any:
        states = [self._state(task)[0] for task in self._get_job_ids(batch_id)]
        if any(state not in FINAL for state in states):
            return BatchStatus.PENDING if all(state == "queued" for state in states) else BatchStatus.RUNNING
        for state, status in (("failed", "ERROR"), ("expired", "TIMED_OUT"), ("cancelled", "CANCELED")):
            if state in states:
                return BatchStatus[status]
        return BatchStatus.DONE

    def _close_batch(self, batch_id: str) -> None:
        """Its tasks go on, as Pulser has it: so the device is given back when the last of them is over."""
        try:
            for task in self._batches.get(batch_id, []):
                self._wait(task)
        finally:
            self._close(batch_id)

    def supports_open_batch(self) -> bool:
        """Whether a device can be held over several calls of `run`."""
        return True


def _build(sequence: Any, params: Mapping[str, Any]) -> Any:
    """A sequence without open variables that measures something."""
    if sequence.is_parametrized() or sequence.is_register_mappable():
        sequence = sequence.build(**(params.get("variables") or {}))
    return RemoteConnection._add_measurement_to_sequence(sequence)
