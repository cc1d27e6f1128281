"""qloom weaves classical and quantum work on one cluster: one program, any strategy, any world.

Names are imported when they are first used, so that workers start quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qloom.answers import AtomCounts, Counts, Sample, Samples
    from qloom.errors import InputError, JobError, QloomError
    from qloom.job.job import Job
    from qloom.model import CommandResult, Payload, Task, call, command, task
    from qloom.payloads.adapt import delay, qubo
    from qloom.programs.decorate import program
    from qloom.runs.outcome import Outcome
    from qloom.runs.resume import resume
    from qloom.runs.runner import run, run_async
    from qloom.site import Overheads, Qpu, Site, Watts
    from qloom.version import __version__

_WHERE = {
    "AtomCounts": "answers",
    "CommandResult": "model",
    "Counts": "answers",
    "InputError": "errors",
    "Job": "job.job",
    "JobError": "errors",
    "Outcome": "runs.outcome",
    "Overheads": "site",
    "Payload": "model",
    "QloomError": "errors",
    "Qpu": "site",
    "Sample": "answers",
    "Samples": "answers",
    "Site": "site",
    "Task": "model",
    "Watts": "site",
    "__version__": "version",
    "call": "model",
    "command": "model",
    "delay": "payloads.adapt",
    "program": "programs.decorate",
    "qubo": "payloads.adapt",
    "resume": "runs.resume",
    "run": "runs.runner",
    "run_async": "runs.runner",
    "task": "model",
}

__all__ = [
    "AtomCounts",
    "CommandResult",
    "Counts",
    "InputError",
    "Job",
    "JobError",
    "Outcome",
    "Overheads",
    "Payload",
    "QloomError",
    "Qpu",
    "Sample",
    "Samples",
    "Site",
    "Task",
    "Watts",
    "__version__",
    "call",
    "command",
    "delay",
    "program",
    "qubo",
    "resume",
    "run",
    "run_async",
    "task",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'qloom' has no attribute {name!r}")
    return getattr(importlib.import_module(f"qloom.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
