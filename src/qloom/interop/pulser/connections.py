"""Connections of Pulser to a broker and to a job, and the backend over them.

In a broker an open batch is a session, which holds a share of the device; in a job it is a quantum block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pulser.backend import BackendConfig, Results
from pulser.backend.remote import RemoteBackend, RemoteResultsError

from qloom.answers import AtomCounts
from qloom.errors import InputError, PayloadError
from qloom.interop.pulser.batches import SequenceConnection
from qloom.interop.transport import PayloadTransport, StartedTask
from qloom.payloads.adapt import to_payload

DEFAULT_RUNS = 100
NAME = re.compile(r"pulser-(\d+)ns")  # a task is named by how long its sequence is: results say it again


class QloomConnection(SequenceConnection):
    """Sends sequences to a QPU of a broker; `device=None` takes the one with the least to do."""

    def __init__(
        self,
        device: str | None = None,
        client: Any = None,
        *,
        session: str | None = None,
        default_runs: int = DEFAULT_RUNS,
        **options: Any,
    ) -> None:
        super().__init__(default_runs)
        self._device = device
        self._session = session
        self._own = client is None
        if client is None:
            from qloom.broker.client.sync import SyncBrokerClient  # needs the extra `broker`, which a job does not

            client = SyncBrokerClient(**options)
        self._client = client

    def _open(self) -> str:
        return str(self._client.open_session(self._device or self._any_device())["id"])

    def _close(self, batch_id: str) -> None:
        self._client.close_session(batch_id)

    def _send(self, sequence: Any, runs: int, batch_id: str | None) -> str:
        session = batch_id or self._session
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

    def _state(self, task: str) -> tuple[str, str]:
        view = self._client.status(task)
        return str(view["state"]), str(view["reason"] or "")

    def _results(self, task: str) -> Any:
        counts, atoms = _counts(self._client.result(task))
        length = NAME.fullmatch(self._client.status(task)["name"] or "")
        return Results.from_final_bitstrings(atoms, int(length[1]) if length else 0, counts)

    def _wait(self, task: str) -> None:
        self._client.wait(task)

    def _take_back(self, task: str) -> None:
        self._client.cancel(task)

    def close(self) -> None:
        """Let go of the connection, if it is this object's own."""
        if self._own:
            self._client.close()


class JobConnection(SequenceConnection):
    """Sends sequences through a job. To look at results is to wait for them, as with all calls of a program."""

    def __init__(
        self, transport: PayloadTransport, block: Callable[[], AbstractContextManager[None]], default_runs: int
    ) -> None:
        super().__init__(default_runs)
        self._transport = transport
        self._block = block
        self._blocks: dict[str, AbstractContextManager[None]] = {}  # by batch
        self._tasks: dict[str, tuple[StartedTask, int]] = {}  # with the length of the sequence in ns
        self._taken_back: set[str] = set()

    def _open(self) -> str:
        batch = f"batch-{len(self._batches) + 1}"
        self._blocks[batch] = self._block()
        self._blocks[batch].__enter__()
        return batch

    def _close(self, batch_id: str) -> None:
        self._blocks.pop(batch_id).__exit__(None, None, None)

    def _send(self, sequence: Any, runs: int, batch_id: str | None) -> str:
        task = self._transport.start(to_payload(sequence, shots=runs))
        self._tasks[task.id] = (task, sequence.get_duration())
        return task.id

    def _state(self, task: str) -> tuple[str, str]:
        return "cancelled" if task in self._taken_back else self._tasks[task][0].state(), ""

    def _fetch_result(self, batch_id: str, job_ids: list[str] | None) -> Sequence[Any]:
        wanted = job_ids if job_ids is not None else self._get_job_ids(batch_id)
        return [self._results(task) for task in wanted]

    def _results(self, task: str) -> Any:
        started, length_ns = self._tasks[task]
        answer: AtomCounts = started.result()
        return Results.from_final_bitstrings(list(answer.atoms), length_ns, dict(answer.counts))

    def _wait(self, task: str) -> None:
        self._tasks[task][0].result()

    def _take_back(self, task: str) -> None:
        if self._tasks[task][0].cancel():
            self._taken_back.add(task)


class QloomBackend(RemoteBackend):  # type: ignore[misc, unused-ignore]
    """A remote backend with a connection of its own: `QloomBackend(sequence, device="fresnel").run(wait=True)`."""

    def __init__(
        self,
        sequence: Any,
        connection: SequenceConnection | None = None,
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


def _counts(answer: Any) -> tuple[dict[str, int], list[str]]:
    """Counts and atoms: ours, or a vendor's under `counter`."""
    found: Any = answer.get("value") if isinstance(answer, Mapping) and answer.get("form") == "vendor" else answer
    counts = (found.get("counts") or found.get("counter")) if isinstance(found, Mapping) else None
    if not isinstance(counts, Mapping) or not counts:
        raise RemoteResultsError("the device does not answer with counts")
    atoms = found.get("atoms") or [f"q{number}" for number in range(len(next(iter(counts))))]
    return {str(bits): int(number) for bits, number in counts.items()}, [str(atom) for atom in atoms]
