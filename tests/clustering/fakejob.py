"""A job without a world: tasks run at once in this process, QUBOs go to simulated annealing."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from dimod import BinaryQuadraticModel
from dwave.samplers import SimulatedAnnealingSampler

from qloom.model import Sample, Task


class FakeShared:
    """Arrives in a task as a read-only array, as a file mapped into memory would."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.digest = hashlib.sha256(pickle.dumps(value)).hexdigest()

    def opened(self) -> Any:
        if isinstance(self.value, np.ndarray):
            view = self.value.view()
            view.flags.writeable = False
            return view
        return self.value


class FakeJob:
    """Counts what it is asked for; `answer` can stand in for the device."""

    def __init__(self, seed: int = 1, output_dir: Path | None = None, answer: Any = None) -> None:
        self.seed = seed
        self.output_dir = output_dir
        self.answer = answer
        self.ran: list[str] = []
        self.speculated: list[str] = []
        self.asked: list[str] = []
        self.models: list[Any] = []

    async def classical(self, *tasks: Task) -> list[Any]:
        await asyncio.sleep(0)
        return [self._run(task) for task in tasks]

    async def quantum(self, problem: Any, *, shots: int = 100, expected_s: float | None = None) -> Sample:
        await asyncio.sleep(0)
        model = BinaryQuadraticModel.from_qubo(problem)
        self.models.append(model)
        if self.answer is not None:
            return self.answer(model)
        content = repr((sorted(model.linear.items()), sorted(model.quadratic.items()), self.seed)).encode()
        seed = int(hashlib.sha256(content).hexdigest()[:7], 16)
        best = SimulatedAnnealingSampler().sample(model, num_reads=shots, seed=seed).first
        return Sample({name: int(value) for name, value in best.sample.items()}, float(best.energy))

    def speculate(self, *tasks: Task) -> None:
        self.speculated.extend(content(task) for task in tasks)

    def share(self, value: Any) -> FakeShared:
        return FakeShared(value)

    def _run(self, task: Task) -> Any:
        self.ran.append(task.name)
        self.asked.append(content(task))
        arguments = [a.opened() if isinstance(a, FakeShared) else a for a in task.args]
        return pickle.loads(pickle.dumps(task.function.function(*arguments)))


def content(task: Task) -> str:
    arguments = [a.digest if isinstance(a, FakeShared) else a for a in task.args]
    return hashlib.sha256(pickle.dumps((task.name, arguments))).hexdigest()


def run(program: Any, job: FakeJob | None = None, **settings: Any) -> dict[str, Any]:
    return asyncio.run(program(job or FakeJob(), **settings))
