"""The algorithms of `qiskit_textbook.py` as programs, and QAOA once more as an asynchronous one.

    qloom run examples/textbook/qiskit_programs.py:vqe --world virtual --qpu gates:superconducting
"""

import asyncio

import numpy as np
import qiskit_textbook
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter

import qloom

vqe = qloom.program(qiskit_textbook.vqe)
qaoa_max_cut = qloom.program(qiskit_textbook.qaoa_max_cut)
chsh = qloom.program(qiskit_textbook.chsh)
grover = qloom.program(qiskit_textbook.grover)

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


async def qaoa(job, points=4):
    """Max-cut by a grid of angles: each row of the grid is a pub, and all rows are out at once."""
    gamma, beta = Parameter("a"), Parameter("b")
    circuit = QuantumCircuit(4)
    circuit.h(range(4))
    for u, v in EDGES:
        circuit.rzz(2 * gamma, u, v)
    circuit.rx(2 * beta, range(4))
    circuit.measure_all()
    sampler = job.qiskit_sampler(default_shots=200)
    angles = np.linspace(0.1, 0.7, points)
    rows = [[[-one, other] for other in angles] for one in angles]
    results = await asyncio.gather(*(sampler.run([(circuit, row)]) for row in rows))
    grid = [(row, place) for row in range(points) for place in range(points)]
    return max((average_cut(results[row][0].data.meas.get_counts(place)), row, place) for row, place in grid)


def average_cut(counts):
    """The mean number of edges that the samples cut."""
    cuts = {text: sum(text[-1 - u] != text[-1 - v] for u, v in EDGES) for text in counts}
    return sum(cuts[text] * number for text, number in counts.items()) / sum(counts.values())
