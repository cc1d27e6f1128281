"""Pulser through the broker: `QloomBackend(sequence).run([{"runs": 100}])`, or any of Pulser's remote backends
with a `QloomConnection`.

A Pulser job is a task. A batch is its tasks: its id holds theirs, so that results can be fetched from another
process. An open batch is a session: a share of the device is held until the batch is closed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pulser.backend import BackendConfig, Results
from pulser.backend.remote import (
    BatchStatus,
    JobStatus,
    RemoteBackend,
    RemoteConnection,
    RemoteResults,
    RemoteResultsError,
)

from qloom.broker.client.sync import SyncBrokerClient
from qloom.broker.queue.task import FINAL
from qloom.errors import InputError, PayloadError

DEFAULT_RUNS = 100
NAME = re.compile(r"pulser-(\d+)ns")  # a task is named by how long its sequence is: results say it again
STATUS = {
    "queued": JobStatus.PENDING,
    "done": JobStatus.DONE,
    "failed": JobStatus.ERROR,
    "expired": JobStatus.ERROR,
    "cancelled": JobStatus.CANCELED,
}


class QloomConnection(RemoteConnection):  # type: ignore[misc, unused-ignore]
    """Sends sequences to a QPU of a broker; `device=None` takes the one with the least to do."""

    def __init__(
        self,
        device: str | None = None,
        client: SyncBrokerClient | None = None,
        *,
        session: str | None = None,
        default_runs: int = DEFAULT_RUNS,
        **options: Any,
    ) -> None:
        self._device = device
        self._session = session
        self._runs = default_runs
        self._own = client is None
        self._client = client or SyncBrokerClient(**options)
        self._batches: dict[str, list[str]] = {}  # tasks by session, of the open batches of this connection

    def submit(
        self, sequence: Any, wait: bool = False, open: bool = False, batch_id: str | None = None, **kwargs: Any
    ) -> Any:
        """Queue a task for each of `job_params`; with `open` and none of them, only hold the device."""
        if open and batch_id is None:
            batch_id = str(self._client.open_session(self._device or self._any_device())["id"])
            self._batches[batch_id] = []
        params: list[dict[str, Any]] = kwargs.get("job_params") or ([] if open else [{}])
        ready = [(_build(sequence, one), int(one.get("runs") or self._runs)) for one in params]
        if batch_id is not None and batch_id not in self._batches:
            raise InputError(f"{batch_id} is no open batch of this connection")
        tasks: list[str] = []
        try:
            for built, runs in ready:
                tasks.append(self._send(built, runs, batch_id or self._session))
        except BaseException:  # half of them are of no use to anybody
            for task in tasks:
                self._client.cancel(task)
            raise
        if batch_id is not None:
            self._batches[batch_id] += tasks
        if wait:
            for task in tasks:
                self._client.wait(task)
        if batch_id is None:
            return RemoteResults("+".join(tasks), self)
        return RemoteResults(batch_id, self, job_ids=tasks or None)

    def _send(self, sequence: Any, runs: int, session: str | None) -> str:
        form = {"kind": "pulser", "body": sequence.to_abstract_repr(), "shots": runs}
        name = f"pulser-{sequence.get_duration()}ns"
        device = None if session is not None else self._device
        return str(self._client.submit(form, name=name, device=device, session=session)["id"])

    def _any_device(self) -> str:
        able = [view for view in self._client.devices() if "pulser" in view["payloads"]]
        if not able:
            raise PayloadError("no QPU here takes a Pulser sequence", hint="see: qloom qpu list")
        able.sort(key=lambda view: (not view["up"], view["expected_wait_s"] or 0.0))
        return str(able[0]["name"])

    def cancel(self, batch_id: str) -> None:
        """Take the tasks of a batch back."""
        for task in self._get_job_ids(batch_id):
            self._client.cancel(task)

    def close(self) -> None:
        """Let go of the connection, if it is this object's own."""
        if self._own:
            self._client.close()

    def __enter__(self) -> QloomConnection:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    # What Pulser asks for

    def _get_job_ids(self, batch_id: str) -> list[str]:
        return list(self._batches[batch_id]) if batch_id in self._batches else batch_id.split("+")

    def _fetch_result(self, batch_id: str, job_ids: list[str] | None) -> Sequence[Any]:
        progress = self._query_job_progress(batch_id)
        wanted = job_ids if job_ids is not None else list(progress)
        for task in wanted:
            if progress[task][1] is None:
                view = self._client.status(task)
                raise RemoteResultsError(
                    f"job {task} is {view['state']}" + (f": {view['reason']}" if view["reason"] else "")
                )
        return [progress[task][1] for task in wanted]

    def _query_job_progress(self, batch_id: str) -> Mapping[str, tuple[Any, Any]]:
        found: dict[str, tuple[Any, Any]] = {}
        for task in self._get_job_ids(batch_id):
            view = self._client.status(task)
            status = STATUS.get(view["state"], JobStatus.RUNNING)
            found[task] = (status, self._results(view) if status is JobStatus.DONE else None)
        return found

    def _results(self, view: Mapping[str, Any]) -> Any:
        counts, atoms = _counts(self._client.result(view["id"]))
        length = NAME.fullmatch(view["name"] or "")
        return Results.from_final_bitstrings(atoms, int(length[1]) if length else 0, counts)

    def _get_batch_status(self, batch_id: str) -> Any:
        views = [self._client.status(task) for task in self._get_job_ids(batch_id)]
        states = [str(view["state"]) for view in views]
        if any(state not in FINAL for state in states):
            return BatchStatus.PENDING if all(state == "queued" for state in states) else BatchStatus.RUNNING
        for state, status in (("failed", "ERROR"), ("expired", "TIMED_OUT"), ("cancelled", "CANCELED")):
            if state in states:
                return BatchStatus[status]
        return BatchStatus.DONE

    def _close_batch(self, batch_id: str) -> None:
        """Its tasks go on, as Pulser has it: so the share is given back when the last of them is over."""
        for task in self._batches.get(batch_id, []):
            self._client.wait(task)
        self._client.close_session(batch_id)

    def supports_open_batch(self) -> bool:
        """Whether a device can be held over several calls of `run`."""
        return True


class QloomBackend(RemoteBackend):  # type: ignore[misc, unused-ignore]
    """A remote backend with a connection of its own: `QloomBackend(sequence, device="fresnel").run(wait=True)`."""

    def __init__(
        self,
        sequence: Any,
        connection: QloomConnection | None = None,
        *,
        config: BackendConfig | None = None,
        mimic_qpu: bool = False,
        **options: Any,
    ) -> None:
        if connection is not None and options:
            raise InputError(f"a connection has its own {', '.join(options)}")
        self._own = connection is None
        self.connection = connection or QloomConnection(**options)
        super().__init__(sequence, self.connection, mimic_qpu, config=config)

    def run(self, job_params: list[Any] | None = None, wait: bool = False) -> Any:
        """Queue a job for each of `job_params`; none: one job of the config's `default_num_shots`."""
        runs = self._config.default_num_shots
        if runs is not None:
            params = [{}] if job_params is None else job_params
            self._type_check_job_params(params)
            job_params = [{"runs": runs} | dict(one) for one in params]
        return super().run(job_params, wait)

    def close(self) -> None:
        """Let go of the connection, if it is the backend's own."""
        if self._own:
            self.connection.close()

    def __enter__(self) -> QloomBackend:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _build(sequence: Any, params: Mapping[str, Any]) -> Any:
    """A sequence without open variables that measures something."""
    if sequence.is_parametrized() or sequence.is_register_mappable():
        sequence = sequence.build(**(params.get("variables") or {}))
    return RemoteConnection._add_measurement_to_sequence(sequence)


def _counts(answer: Any) -> tuple[dict[str, int], list[str]]:
    """Counts and atoms: ours, or a vendor's under `counter`."""
    found: Any = answer.get("value") if isinstance(answer, Mapping) and answer.get("form") == "vendor" else answer
    counts = (found.get("counts") or found.get("counter")) if isinstance(found, Mapping) else None
    if not isinstance(counts, Mapping) or not counts:
        raise RemoteResultsError("the device does not answer with counts")
    atoms = found.get("atoms") or [f"q{number}" for number in range(len(next(iter(counts))))]
    return {str(bits): int(number) for bits, number in counts.items()}, [str(atom) for atom in atoms]
