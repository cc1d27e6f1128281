"""Programs of algorithms that others have written: classes of qiskit-algorithms, given the objects of a job.

pip install qiskit-algorithms
"""

import math

from qiskit import QuantumCircuit
from qiskit.circuit.library import efficient_su2, real_amplitudes
from qiskit.quantum_info import SparsePauliOp
from qiskit_algorithms import QAOA, VQE, AmplificationProblem, Grover, PhaseEstimation, SamplingVQE
from qiskit_algorithms.optimizers import COBYLA, SPSA
from qiskit_algorithms.utils import algorithm_globals

import qloom

HYDROGEN = SparsePauliOp(["II", "IZ", "ZI", "ZZ", "XX"], [-1.052373, 0.397937, -0.397937, -0.011280, 0.180931])
CUT = SparsePauliOp(["IZZ", "ZIZ", "ZZI"], [1.0, 1.0, 0.5])


@qloom.program
def vqe(estimator, maxiter=40):
    """The energy of a hydrogen molecule; -1.857 is exact."""
    start = [0.1] * 8
    solver = VQE(estimator, efficient_su2(2, reps=1), COBYLA(maxiter=maxiter), initial_point=start)
    return round(solver.compute_minimum_eigenvalue(HYDROGEN).eigenvalue.real, 2)


@qloom.program
def vqe_spsa(estimator, job, maxiter=10):
    """The same by SPSA, which draws from a generator of its package; seeded, it takes the same path again."""
    algorithm_globals.random_seed = job.seed
    solver = VQE(estimator, efficient_su2(2, reps=1), SPSA(maxiter=maxiter), initial_point=[0.1] * 8)
    return solver.compute_minimum_eigenvalue(HYDROGEN).eigenvalue.real


@qloom.program
def grover(sampler):
    """The marked state of two qubits."""
    oracle = QuantumCircuit(2)
    oracle.cz(0, 1)
    problem = AmplificationProblem(oracle, is_good_state=["11"])
    return Grover(sampler=sampler, iterations=1).amplify(problem).top_measurement


@qloom.program
def phase(sampler):
    """The phase of a gate, in turns."""
    turn, state = QuantumCircuit(1), QuantumCircuit(1)
    turn.p(2 * math.pi * 0.25, 0)
    state.x(0)
    return PhaseEstimation(3, sampler).estimate(turn, state).phase


@qloom.program
def qaoa(sampler, maxiter=15):
    """The largest cut of a weighted triangle. It samples in a thread: not in virtual time."""
    solver = QAOA(sampler, COBYLA(maxiter=maxiter), reps=1, initial_point=[0.5, 0.5])
    return float(solver.compute_minimum_eigenvalue(CUT).best_measurement["value"].real)


@qloom.program
def sampling_vqe(sampler, maxiter=15):
    """The same with another ansatz. It samples in a thread: not in virtual time."""
    solver = SamplingVQE(sampler, real_amplitudes(3, reps=1), COBYLA(maxiter=maxiter), initial_point=[0.5] * 6)
    return float(solver.compute_minimum_eigenvalue(CUT).best_measurement["value"].real)
