"""A transport for tests: circuits are computed here, by Qiskit's own sampler."""

from __future__ import annotations

from collections import Counter

from qiskit import qasm3
from qiskit.primitives import StatevectorSampler

from qloom.answers import Counts


class StatevectorTransport:
    """Runs what it is given when it is given it, and keeps it for the test."""

    def __init__(self, seed=0, target=None):
        self.seed = seed
        self.target = target
        self.tasks = []  # entries and shots of each
        self._rounds = 0

    def start(self, entries, shots):
        self.tasks.append((list(entries), shots))
        yield FinishedTask([self._run(entry.template, row, shots) for entry in entries for row in entry.rows])

    def _run(self, template, row, shots):
        circuit = qasm3.loads(template)
        names = {parameter.name: parameter for parameter in circuit.parameters}
        bound = circuit.assign_parameters(
            {names[f"_p{n}"]: value for n, value in enumerate(row) if f"_p{n}" in names}
        )
        self._rounds += 1
        data = StatevectorSampler(seed=[self.seed, self._rounds]).run([bound], shots=shots).result()[0].data
        shots_by_register = [getattr(data, register.name).get_bitstrings() for register in reversed(bound.cregs)]
        counts = Counter(" ".join(outcome) for outcome in zip(*shots_by_register, strict=True))
        return Counts(counts, tuple((register.name, register.size) for register in bound.cregs), shots)

    def close(self):
        pass


class FinishedTask:
    id = "here"

    def __init__(self, answers):
        self._answers = answers

    def result(self):
        return self._answers

    def state(self):
        return "done"

    def cancel(self):
        return False
