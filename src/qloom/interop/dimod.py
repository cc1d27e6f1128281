"""A `dimod.Sampler` in front of a QPU: `QloomSampler().sample(bqm)` in place of any other sampler.

Each call of `sample` is a quantum call of a job (`job.dimod_sampler()`), or otherwise a task of a broker.
As with D-Wave's own sampler, `sample` returns at once, and a sample set waits when it is first looked at.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import dimod
import dimod.core.sampler
import dimod.core.structured

from qloom.answers import Samples
from qloom.device import Description
from qloom.devices.profiles import couplings_of
from qloom.errors import InputError, closest
from qloom.interop.transport import FINAL, BrokerTransport, PayloadTransport, StartedTask
from qloom.payloads.adapt import qubo

READS = 100


class QloomSampler(dimod.core.sampler.Sampler):
    """Sends binary quadratic models to a QPU; with a broker, `device=None` takes the one with the least to do.

    `session`, `seed` (of emulated devices) and other `options` are those of a broker's client.
    """

    def __init__(
        self,
        device: str | None = None,
        client: Any = None,
        *,
        transport: PayloadTransport | None = None,
        **options: Any,
    ) -> None:
        self._transport = transport or BrokerTransport(device, client, name="dimod", **options)
        self._unresolved: list[weakref.ref[Any]] = []

    @cached_property
    def _device(self) -> Description | None:
        return self._transport.describe("qubo")

    @property
    def parameters(self) -> dict[str, Any]:
        """What `sample` takes, with the properties that say more; the device's own options come last."""
        options = self._device.options if self._device is not None else None
        return {
            "num_reads": ["num_reads_range"],
            "label": [],
            **{place: [] for place in self._transport.places},
            **({"seed": []} if "session" in self._transport.places else {}),  # a job seeds its calls itself
            **{option: [] for option in options or ()},
        }

    @property
    def properties(self) -> dict[str, Any]:
        """What the device says of itself, in D-Wave's words; empty if the broker chooses a device for each task."""
        if self._device is None:
            return {}
        found: dict[str, Any] = {
            "chip_id": self._device.name,
            "num_reads_range": [1, self._device.max_shots],
            "supported_problem_types": ["qubo", "ising"],
        }
        if self._device.target is not None and self._device.target.graph:
            family, *shape = self._device.target.graph.split()
            found["num_qubits"] = self._device.target.qubits
            found["topology"] = {"type": family, "shape": [int(size) for size in shape]}
        return found

    def sample(self, bqm: Any, **parameters: Any) -> Any:
        """Sample a model `num_reads` times; other parameters are in `parameters`, and unknown ones are refused.

        `info` has the id of the task and how long it was on the device, in microseconds as D-Wave has it.
        """
        num_reads = self._check(parameters)
        label = parameters.pop("label", None)
        places = {name: parameters.pop(name, None) for name in self._transport.places}
        if not bqm.num_variables:
            return _sample_set([], bqm)
        payload = qubo(bqm, shots=num_reads)
        payload = replace(payload, name=str(label or "dimod"), options={**payload.options, **parameters})
        if parameters and self._device is not None:
            places["device"] = places.get("device") or self._device.name  # another one may not know the options
        task = self._transport.start(payload, **places)
        from_future: Any = dimod.SampleSet.from_future
        found = from_future(_Pending(task), lambda pending: _resolve(pending.task, bqm, label))
        self._unresolved = [one for one in self._unresolved if (kept := one()) is not None and not kept.done()]
        self._unresolved.append(weakref.ref(found))
        return found

    def _check(self, parameters: dict[str, Any]) -> int:
        """Refuse what the device does not know; takes `num_reads` out."""
        known = self.parameters
        for name in parameters:
            if name not in known and self._device is not None:  # otherwise the device that is chosen refuses it
                hint = f"{closest(name, list(known))} it takes {', '.join(known)}".lstrip()
                raise InputError(f"{self._device.name} has no option {name!r}", hint=hint)
        reads = parameters.pop("num_reads", None)
        return READS if reads is None else reads

    def close(self) -> None:
        """Wait for the sample sets that somebody still has, then let go of the connection if it is the sampler's."""
        for one in self._unresolved:
            if (found := one()) is not None:
                found.resolve()
        self._unresolved = []
        self._transport.close()

    def __enter__(self) -> QloomSampler:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class QloomStructuredSampler(QloomSampler, dimod.core.structured.Structured):
    """A sampler of a device with a graph: it takes models on that graph, such as embedding composites make."""

    @cached_property
    def nodelist(self) -> list[Any]:
        """The device's qubits."""
        return list(range(self._graph[0]))

    @cached_property
    def edgelist(self) -> list[tuple[Any, Any]]:
        """Pairs of qubits that are coupled."""
        return sorted((min(pair), max(pair)) for pair in self._graph[1])

    @cached_property
    def _graph(self) -> tuple[int, list[tuple[int, int]]]:
        target = None if self._device is None else self._device.target
        if target is None or not has_graph(self._device):
            raise InputError(
                "the device has no graph", hint="name one that has, or use QloomSampler, which takes any model"
            )
        return target.qubits, couplings_of(target)

    def sample(self, bqm: Any, **parameters: Any) -> Any:
        """Sample a model whose variables are qubits of the device and whose interactions are couplings."""
        for variable in bqm.variables:
            if variable not in self.adjacency:
                raise InputError(f"{variable!r} is no qubit of the device", hint=EMBED)
        for u, v in bqm.quadratic:
            if v not in self.adjacency[u]:
                raise InputError(f"qubits {u} and {v} are not coupled on the device", hint=EMBED)
        return super().sample(bqm, **parameters)


EMBED = "embed the problem: dwave.system.EmbeddingComposite(sampler)"


def has_graph(device: Description | None) -> bool:
    """Whether problems have to be embedded in the device's couplings."""
    return device is not None and device.target is not None and bool(device.target.graph)


class _Pending:
    """A task as dimod waits for it."""

    def __init__(self, task: StartedTask) -> None:
        self.task = task

    def done(self) -> bool:
        return self.task.state() in FINAL


def _resolve(task: StartedTask, bqm: Any, label: Any) -> Any:
    answer: Samples = task.result()
    info: dict[str, Any] = {"problem_id": task.id}
    if label is not None:
        info["problem_label"] = label
    if answer.device_s is not None:
        info["timing"] = {"qpu_access_time": round(answer.device_s * 1e6)}
    found = answer.to_dimod()
    rows = (found.record.sample, found.variables)
    return _sample_set(rows, bqm, num_occurrences=found.record.num_occurrences, info=info)


def _sample_set(samples: Any, bqm: Any, **more: Mapping[str, Any] | Any) -> Any:
    make: Any = dimod.SampleSet.from_samples_bqm
    return make(samples, bqm, **more)
