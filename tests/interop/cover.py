"""Which of VQE and QAOA runs where: every strategy in every world, the two programs in turn."""

from __future__ import annotations

from pathlib import Path

from qloom.strategies import STRATEGIES

PROGRAMS = Path(__file__).parents[2] / "examples" / "textbook" / "qiskit_programs.py"
SMALL = {"vqe": {"maxiter": 12}, "qaoa": {"points": 2}}
IN_TURN = [(strategy, list(SMALL)[number % 2]) for number, strategy in enumerate(STRATEGIES)]
OTHERS = [(strategy, list(SMALL)[(number + 1) % 2]) for number, strategy in enumerate(STRATEGIES)]
