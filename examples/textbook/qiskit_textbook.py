"""Four algorithms as Qiskit's tutorials write them: functions of an estimator or a sampler. None knows of qloom."""

import numpy as np
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter, ParameterVector
from qiskit.circuit.library import efficient_su2
from qiskit.quantum_info import SparsePauliOp
from scipy.optimize import minimize


def vqe(estimator, maxiter=30):
    """The lowest energy of a two-qubit hydrogen molecule: a variational quantum eigensolver."""
    hamiltonian = SparsePauliOp(
        ["II", "IZ", "ZI", "ZZ", "XX"], coeffs=[-1.052373, 0.397937, -0.397937, -0.011280, 0.180931]
    )
    ansatz = efficient_su2(hamiltonian.num_qubits, reps=1)

    def cost_func(params):
        pub = (ansatz, [hamiltonian], [params])
        result = estimator.run(pubs=[pub]).result()
        return result[0].data.evs[0]

    x0 = np.linspace(0.1, 1.0, ansatz.num_parameters)
    res = minimize(cost_func, x0, method="COBYLA", options={"maxiter": maxiter})
    return float(res.fun)


def qaoa_max_cut(estimator, sampler, reps=1, maxiter=20):
    """The largest cut of a ring of four nodes with one chord: train on the estimator, read the cut off samples."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    cost_hamiltonian = SparsePauliOp.from_sparse_list([("ZZ", list(edge), 1.0) for edge in edges], num_qubits=4)
    gammas, betas = ParameterVector("g", reps), ParameterVector("b", reps)
    circuit = QuantumCircuit(4)
    circuit.h(range(4))
    for gamma, beta in zip(gammas, betas, strict=True):
        for u, v in edges:
            circuit.rzz(2 * gamma, u, v)
        circuit.rx(2 * beta, range(4))

    def cost_func_estimator(params):
        job = estimator.run([(circuit, cost_hamiltonian, params)])
        return float(job.result()[0].data.evs)

    order = {parameter: index for index, parameter in enumerate(circuit.parameters)}
    x0 = np.array([0.4 if parameter in set(betas) else -0.6 for parameter in order])
    result = minimize(cost_func_estimator, x0, method="COBYLA", options={"maxiter": maxiter})
    optimized_circuit = circuit.assign_parameters(result.x)
    optimized_circuit.measure_all()
    counts = sampler.run([optimized_circuit], shots=500).result()[0].data.meas.get_counts()

    def cut(bitstring):
        sides = [int(bit) for bit in reversed(bitstring)]
        return sum(sides[u] != sides[v] for u, v in edges)

    best = max(counts, key=lambda bitstring: (cut(bitstring), bitstring))
    return best, cut(best)


def chsh(estimator, points=21):
    """The CHSH inequality over a sweep of angles: 2 is the classical bound, 2 sqrt 2 the quantum one."""
    theta = Parameter("theta")
    chsh_circuit = QuantumCircuit(2)
    chsh_circuit.h(0)
    chsh_circuit.cx(0, 1)
    chsh_circuit.ry(theta, 0)
    individual_phases = np.linspace(0, 2 * np.pi, points)
    phases = [[phase] for phase in individual_phases]
    observable1 = SparsePauliOp.from_list([("ZZ", 1), ("ZX", -1), ("XZ", 1), ("XX", 1)])
    observable2 = SparsePauliOp.from_list([("ZZ", 1), ("ZX", 1), ("XZ", -1), ("XX", 1)])
    pub = (chsh_circuit, [[observable1], [observable2]], [phases])
    evs = estimator.run(pubs=[pub]).result()[0].data.evs
    return float(np.abs(evs).max())


def grover(sampler, marked="101"):
    """Finds a marked bit string with two rounds of Grover's algorithm."""
    qubits = len(marked)
    oracle = QuantumCircuit(qubits)
    zeros = [qubit for qubit, bit in enumerate(reversed(marked)) if bit == "0"]
    if zeros:
        oracle.x(zeros)
    oracle.h(qubits - 1)
    oracle.mcx(list(range(qubits - 1)), qubits - 1)
    oracle.h(qubits - 1)
    if zeros:
        oracle.x(zeros)
    diffuser = QuantumCircuit(qubits)
    diffuser.h(range(qubits))
    diffuser.x(range(qubits))
    diffuser.h(qubits - 1)
    diffuser.mcx(list(range(qubits - 1)), qubits - 1)
    diffuser.h(qubits - 1)
    diffuser.x(range(qubits))
    diffuser.h(range(qubits))
    qc = QuantumCircuit(qubits)
    qc.h(range(qubits))
    for _ in range(2):
        qc.compose(oracle, inplace=True)
        qc.compose(diffuser, inplace=True)
    qc.measure_all()
    dist = sampler.run([qc], shots=200).result()[0].data.meas.get_counts()
    return max(dist, key=dist.get)
