"""A `dimod.Sampler` through the broker: `QloomSampler().sample(bqm)` in place of any other sampler."""

from __future__ import annotations

from typing import Any

import dimod
import dimod.core.sampler

from qloom.broker.client.sync import SyncBrokerClient
from qloom.payloads.adapt import qubo


class QloomSampler(dimod.core.sampler.Sampler):
    """Sends binary quadratic models to a QPU of a broker; `device=None` takes the one with the least to do."""

    parameters: dict[str, Any] = {"num_reads": [], "device": [], "session": []}  # noqa: RUF012  as dimod asks for
    properties: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, device: str | None = None, client: SyncBrokerClient | None = None, **options: Any) -> None:
        self._device = device
        self._own = client is None
        self._client = client or SyncBrokerClient(**options)

    def sample(
        self,
        bqm: Any,
        num_reads: int = 100,
        device: str | None = None,
        session: str | None = None,
        **parameters: Any,
    ) -> Any:
        """Sample a model; the answer has its own variables and vartype."""
        parameters = self.remove_unknown_kwargs(**parameters)
        if not bqm.num_variables:
            return _sample_set([], bqm)
        labels = list(bqm.variables)  # JSON has no tuples: the device sees numbers
        numbers = {label: number for number, label in enumerate(labels)}
        problem = bqm.change_vartype("BINARY", inplace=False).relabel_variables(numbers, inplace=False)
        options = {"device": device or self._device, "session": session, "name": "dimod"}
        answer = self._client.run(qubo(problem, shots=num_reads), **options)
        order = [labels[number] for number in answer["variables"]]
        binary = bqm.change_vartype("BINARY", inplace=False)
        found = _sample_set((answer["samples"], order), binary, num_occurrences=answer["occurrences"])
        return found.change_vartype(bqm.vartype, inplace=False)

    def close(self) -> None:
        """Let go of the connection, if it is the sampler's own."""
        if self._own:
            self._client.close()

    def __enter__(self) -> QloomSampler:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _sample_set(samples: Any, bqm: Any, **more: Any) -> Any:
    make: Any = dimod.SampleSet.from_samples_bqm
    return make(samples, bqm, **more)
