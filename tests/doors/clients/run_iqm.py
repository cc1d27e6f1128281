"""IQM's own client against a door: `python run_iqm.py SCENARIO URL TOKEN` prints what it found as JSON.

Runs in an environment that has iqm-client[qiskit] and nothing of qloom.
"""

import json
import sys
import time
from uuid import uuid4

scenario, url, token = sys.argv[1:]


def ghz(size):
    from qiskit import QuantumCircuit

    circuit = QuantumCircuit(size)
    circuit.h(0)
    for qubit in range(size - 1):
        circuit.cx(qubit, qubit + 1)
    circuit.measure_all()
    return circuit


def example():
    """What a first program with the Qiskit adapter does: a Bell pair and a GHZ state, transpiled and run."""
    from iqm.qiskit_iqm import IQMProvider
    from qiskit import transpile

    backend = IQMProvider(url, token=token).get_backend(use_metrics=True)
    circuits = transpile([ghz(2), ghz(5)], backend, optimization_level=1, seed_transpiler=1)
    bell, five = backend.run(circuits, shots=400).result().get_counts()
    cz = next(iter(backend.target["cz"].values()))
    return {
        "qubits": backend.num_qubits,
        "pairs": len(backend.architecture.gates["cz"].loci),
        "bell": bell,
        "five": five,
        "cz": [cz.duration, cz.error],
        "t1": backend.target.qubit_properties[0].t1,
    }


def bare():
    """The client without Qiskit: health, a circuit of its own, counts, cancellation, and what is refused."""
    from exa.common.errors.iqm_error import IQMError
    from iqm.iqm_client import IQMClient
    from iqm.pulse import Circuit, CircuitOperation

    client = IQMClient.from_url(url, token=token)

    def circuit(*loci):
        turned = [CircuitOperation(name="prx", locus=("QB1",), args={"angle": 3.141592653589793, "phase": 0.0})]
        pairs = [CircuitOperation(name="cz", locus=locus, args={}) for locus in loci]
        read = CircuitOperation(name="measure", locus=("QB1", "QB2"), args={"key": "both bits"})
        return Circuit(name="c", instructions=(*turned, *pairs, read))

    def refused(call):
        try:
            return repr(call())
        except IQMError as error:
            return [type(error).__name__, str(error)]

    job = client.submit_circuits([circuit(("QB1", "QB2"))], shots=7)
    job.wait_for_completion()
    waiting = [client.submit_circuits([circuit()], shots=100_000) for _ in range(2)]
    for one in waiting:
        one.cancel()
    while any(str(client.get_job(one.job_id).status) in ("waiting", "processing") for one in waiting):
        time.sleep(0.1)  # the device gives one back
    return {
        "health": client.get_health()["status"],
        "measured": job.result()[0],
        "counts": client.get_job_measurement_counts(job.job_id)[0].counts,
        "cancelled": [str(client.get_job(one.job_id).status) for one in waiting],
        "static": len(client.get_static_quantum_architecture().connectivity),
        "stale": refused(lambda: client.submit_circuits([circuit()], shots=1, calibration_set_id=uuid4())),
        "unknown": refused(lambda: client.get_job(uuid4())),
    }


def refused():
    """What the first call that is refused raises."""
    from exa.common.errors.iqm_error import IQMError
    from iqm.iqm_client import IQMClient
    from iqm.pulse import Circuit, CircuitOperation

    read = CircuitOperation(name="measure", locus=("QB1",), args={"key": "m"})
    try:
        IQMClient.from_url(url, token=token).submit_circuits([Circuit(name="c", instructions=(read,))], shots=1000)
    except IQMError as error:
        return [type(error).__name__, str(error)]


def check():
    """Which of the jobs on standard input, one per line, the client's own models reject."""
    from iqm.iqm_client.models import validate_circuit
    from iqm.station_control.interface.models import CircuitJobDefinition

    rejected = []
    for line in sys.stdin:
        try:
            for circuit in CircuitJobDefinition.model_validate_json(line).circuits:
                validate_circuit(circuit)
        except ValueError as error:
            rejected.append([line, str(error)])
    return rejected


print(json.dumps(globals()[scenario]()))
