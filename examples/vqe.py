"""The ground state of a small Ising chain: a variational quantum eigensolver as it is written with Qiskit and SciPy."""

import numpy as np
from qiskit.circuit.library import efficient_su2
from qiskit.quantum_info import SparsePauliOp
from scipy.optimize import minimize

CHAIN = SparsePauliOp(["ZZI", "IZZ", "XII", "IXI", "IIX"], coeffs=[-1.0, -1.0, -0.5, -0.5, -0.5])


def program(job, maxiter=60):
    estimator = job.qiskit_estimator()
    ansatz = efficient_su2(3, ["ry"], reps=1)

    def energy(angles):
        return float(estimator.run([(ansatz, CHAIN, angles)]).result()[0].data.evs)

    found = minimize(energy, np.full(ansatz.num_parameters, 0.5), method="COBYLA", options={"maxiter": maxiter})
    return round(found.fun, 2)
