"""The objects that a job hands out for code that is written against Qiskit: each call of one is a call of the job."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from qloom.errors import InputError

if TYPE_CHECKING:
    from qloom.device import DeviceTarget
    from qloom.interop.qiskit.transport import CallHandle


class QiskitObjects:
    """Makes samplers, estimators and backends whose circuits are quantum calls of one job."""

    def __init__(
        self, call: Callable[..., CallHandle], target: Callable[[str | None], DeviceTarget | None], seed: int
    ) -> None:
        self._call = call
        self._target = target  # of a device, or of the one that would be chosen
        self._seed = seed

    def sampler(self, device: str | None, options: dict[str, Any]) -> Any:
        """A `BaseSamplerV2`."""
        _require()
        from qloom.interop.qiskit import QloomSamplerV2

        return QloomSamplerV2(transport=self._transport(device), **options)

    def estimator(self, device: str | None, options: dict[str, Any]) -> Any:
        """A `BaseEstimatorV2`."""
        _require()
        from qloom.interop.qiskit import QloomEstimatorV2

        return QloomEstimatorV2(transport=self._transport(device), **options)

    def backend(self, device: str | None, options: dict[str, Any]) -> Any:
        """A `BackendV2`."""
        _require()
        from qloom.interop.qiskit import QloomBackendV2

        return QloomBackendV2(device, transport=self._transport(device), **options)

    def _transport(self, device: str | None) -> Any:
        from qloom.interop.qiskit.targets import qiskit_target
        from qloom.interop.qiskit.transport import JobTransport

        machine = self._target(device)
        target = None if machine is None else qiskit_target(machine)
        return JobTransport(self._call, device, target, self._seed)


def _require() -> None:
    if find_spec("qiskit") is None:
        raise InputError("qiskit: not installed", hint="pip install 'qloom[qiskit]'")
