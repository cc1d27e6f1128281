"""A Qiskit estimator: `QloomEstimatorV2()` in place of any other `EstimatorV2`.

Each pub becomes a task of all circuits that its observables need. Arrays of parameter values and of observables are
broadcast as Qiskit does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from qiskit.primitives import BaseEstimatorV2, DataBin, PubResult  # type: ignore[import, unused-ignore]
from qiskit.primitives.containers.estimator_pub import EstimatorPub  # type: ignore[import, unused-ignore]

from qloom.answers import Counts
from qloom.errors import InputError, PayloadError
from qloom.interop.qiskit.compiling import Compiler, Prepared
from qloom.interop.qiskit.expectation import Basis, Measurements, basis_change, measured
from qloom.interop.qiskit.jobs import PreparedPub, QloomJob
from qloom.interop.qiskit.pubs import ParametrisedCircuit, Values, read_pubs, values_of, whole_shots
from qloom.interop.qiskit.transport import CircuitTransport, broker_circuits
from qloom.payloads.circuits import CircuitRows

DEFAULT_PRECISION = 1 / 64  # 4,096 shots, as Qiskit's BackendEstimatorV2 has it


class QloomEstimatorV2(BaseEstimatorV2):  # type: ignore[misc, unused-ignore]
    """Estimates expectation values on a QPU, through a broker or through a job (`job.qiskit_estimator()`).

    Each circuit of a pub with precision p is run for 1 / p^2 shots, rounded up, so that a single Pauli word has a
    standard error of at most p. `default_shots` (or `shots` of a call) gives the number of shots itself. The other
    arguments are those of `QloomSamplerV2`.
    """

    def __init__(
        self,
        device: str | None = None,
        client: Any = None,
        *,
        default_precision: float = DEFAULT_PRECISION,
        default_shots: int | None = None,
        transport: CircuitTransport | None = None,
        **options: Any,
    ) -> None:
        self._precision = _positive(default_precision, "default_precision")
        self._shots = None if default_shots is None else whole_shots(default_shots)
        self._transport = transport or broker_circuits(device, client, **options)
        compiler = Compiler(self._transport)
        self._measurable = Prepared(lambda circuit: _MeasurableCircuit(circuit, compiler))

    def run(self, pubs: Iterable[Any], *, precision: float | None = None, shots: int | None = None) -> QloomJob:
        """Queue the pubs: tuples of a circuit, observables, parameter values and a precision."""
        if precision is not None and shots is not None:
            raise InputError("give a precision or shots, not both")
        if precision is not None:
            precision = _positive(precision, "precision")
        elif shots is not None:
            shots = whole_shots(shots)
        elif self._shots is not None:
            shots = self._shots
        else:
            precision = self._precision
        read = read_pubs(pubs, lambda pub: EstimatorPub.coerce(pub, precision))
        return QloomJob(self._transport, [self._prepare(pub, number, shots) for number, pub in enumerate(read)])

    def _prepare(self, pub: Any, number: int, shots: int | None) -> PreparedPub:
        if pub.precision is not None:  # a pub's own counts before the call's
            shots = math.ceil(1 / _positive(pub.precision, f"pub {number}: precision") ** 2)
        assert shots is not None  # noqa: S101  `run` has given one of the two
        circuit = self._measurable.of(pub.circuit)
        observables = circuit.place(pub.observables)
        measurements = Measurements(pub.parameter_values.shape, observables)
        values = values_of(pub, number)
        entries = [circuit.entry(basis, values[points]) for basis, points in measurements.points.items()]
        return PreparedPub(entries, shots, partial(_pub_result, pub, shots, measurements))

    def close(self) -> None:
        """Let go of the connection, if it is the estimator's own."""
        self._transport.close()

    def __enter__(self) -> QloomEstimatorV2:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _MeasurableCircuit:
    """A circuit made to fit the target, and its templates with the measurements that were asked for."""

    def __init__(self, circuit: Any, compiler: Compiler) -> None:
        self._origin = circuit.copy()
        self._fitted = compiler.fit(circuit)
        self._compiler = compiler
        self._measured: dict[Basis, ParametrisedCircuit] = {}

    def place(self, observables: Any) -> Any:
        """Observables of the circuit as observables of the qubits that it was placed on."""
        return observables if self._fitted.layout is None else observables.apply_layout(self._fitted.layout)

    def entry(self, basis: Basis, values: Values) -> CircuitRows:
        """The circuit with a measurement in this basis, for each row of values of its parameters."""
        known = self._measured.get(basis)
        if known is None:
            circuit = self._fitted.circuit
            change = self._compiler.in_native_gates(basis_change(basis, circuit.num_qubits))
            known = self._measured[basis] = ParametrisedCircuit(measured(circuit, basis, change), self._origin)
        return known.entry(values)


def _positive(precision: Any, name: str) -> float:
    if isinstance(precision, bool) or not isinstance(precision, int | float) or not 0 < precision < math.inf:
        hint = "a QPU estimates from shots: precision=0.01 takes 10,000"
        raise PayloadError(f"{name} must be greater than 0, not {precision!r}", hint=hint)
    return float(precision)


def _pub_result(pub: Any, shots: int, measurements: Measurements, answers: list[Counts]) -> Any:
    evs, stds = measurements.estimate(answers, pub.circuit.num_clbits, shots)
    precision = pub.precision if pub.precision is not None else 1 / math.sqrt(shots)
    metadata = {"target_precision": precision, "shots": shots, "circuit_metadata": pub.circuit.metadata}
    return PubResult(DataBin(evs=evs, stds=stds, shape=evs.shape), metadata=metadata)
