"""A Qiskit sampler: `QloomSamplerV2()` in place of any other `SamplerV2`.

Each pub becomes a task, queued when `run` returns. Devices answer with counts, so the order of shots means nothing;
bits of one shot stay together over all registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from qiskit.primitives import BaseSamplerV2  # type: ignore[import, unused-ignore]
from qiskit.primitives.containers.sampler_pub import SamplerPub  # type: ignore[import, unused-ignore]

from qloom.answers import Counts, pub_result
from qloom.interop.qiskit.bits import by_registers, check_counts
from qloom.interop.qiskit.compiling import Compiler, Prepared
from qloom.interop.qiskit.jobs import PreparedPub, QloomJob
from qloom.interop.qiskit.pubs import ParametrisedCircuit, read_pubs, require_measurement, values_of, whole_shots
from qloom.interop.qiskit.transport import CircuitTransport, broker_circuits

DEFAULT_SHOTS = 1024  # as Qiskit's own samplers have it


class QloomSamplerV2(BaseSamplerV2):  # type: ignore[misc, unused-ignore]
    """Samples circuits on a QPU: through a broker, or through the job that made the object (`job.qiskit_sampler()`).

    With a broker, `device=None` takes the device with the least to do; the circuits of a pub share a task, up to
    `circuits_per_task`; `seed` is for emulated devices; `session` and other `options` are those of the client.
    """

    def __init__(
        self,
        device: str | None = None,
        client: Any = None,
        *,
        default_shots: int = DEFAULT_SHOTS,
        transport: CircuitTransport | None = None,
        **options: Any,
    ) -> None:
        self._shots = whole_shots(default_shots)
        self._transport = transport or broker_circuits(device, client, **options)
        compiler = Compiler(self._transport)
        self._circuits = Prepared(lambda circuit: ParametrisedCircuit(compiler.fit(circuit).circuit, circuit))

    def run(self, pubs: Iterable[Any], *, shots: int | None = None) -> QloomJob:
        """Queue the pubs: circuits, or tuples of a circuit, parameter values and shots."""
        usual = self._shots if shots is None else whole_shots(shots)
        read = read_pubs(pubs, lambda pub: SamplerPub.coerce(pub, usual))
        return QloomJob(self._transport, [self._prepare(pub, number) for number, pub in enumerate(read)])

    def _prepare(self, pub: Any, number: int) -> PreparedPub:
        require_measurement(pub.circuit, number)
        entry = self._circuits.of(pub.circuit).entry(values_of(pub, number))
        return PreparedPub([entry], pub.shots, partial(_pub_result, pub))

    def close(self) -> None:
        """Let go of the connection, if it is the sampler's own."""
        self._transport.close()

    def __enter__(self) -> QloomSamplerV2:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _pub_result(pub: Any, answers: list[Counts]) -> Any:
    checked = [check_counts(answer, pub.circuit.num_clbits, pub.shots) for answer in answers]
    found = [by_registers(pub.circuit, answer) for answer in checked]
    return pub_result(found, pub.shape, {"circuit_metadata": pub.circuit.metadata})
