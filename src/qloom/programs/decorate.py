"""`@qloom.program`: a function that is given Qiskit's objects becomes a program, and stays as it is.

A parameter says by its name, or by its annotation, which object of the job it is given. The other parameters are
those of the program.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from operator import methodcaller
from typing import Any

from qloom.errors import InputError

# name of a parameter: how the job makes it
OBJECTS: dict[str, Callable[[Any], Any]] = {
    "job": lambda job: job,
    "sampler": methodcaller("qiskit_sampler"),
    "estimator": methodcaller("qiskit_estimator"),
    "backend": methodcaller("qiskit_backend"),
}
ANNOTATIONS = {
    "BaseSamplerV2": "sampler",
    "BaseEstimatorV2": "estimator",
    "BackendV2": "backend",
}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a program of a function: `@qloom.program`, or `vqe = qloom.program(library.vqe)`.

    Parameters called `sampler`, `estimator`, `backend` or `job`, or annotated with Qiskit's `BaseSamplerV2`,
    `BaseEstimatorV2` or `BackendV2`, are given the job's objects. The function itself is `program.__wrapped__`.
    """
    if not inspect.isfunction(function):
        raise InputError(f"expected a function, got {function!r}", hint="qloom.program(function)")
    parameters = inspect.signature(function).parameters.values()
    makers = {each.name: OBJECTS[kind] for each in parameters if (kind := _object_of(each)) is not None}
    if not makers:
        raise InputError(
            f"{function.__name__} takes no object of a job",
            hint=f"name a parameter {', '.join(OBJECTS)}, or annotate it with one of {', '.join(ANNOTATIONS)}",
        )

    def given(job: object, values: dict[str, Any]) -> dict[str, Any]:
        return {**{name: make(job) for name, make in makers.items()}, **values}

    async def run_async(job: object, **values: Any) -> Any:
        return await function(**given(job, values))

    def run_sync(job: object, **values: Any) -> Any:
        return function(**given(job, values))

    wrapped = functools.wraps(function)(run_async if inspect.iscoroutinefunction(function) else run_sync)
    first = inspect.Parameter("job", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = [each.replace(kind=_by_name(each)) for each in parameters if each.name not in makers]
    wrapped.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]
    return wrapped


def _object_of(parameter: inspect.Parameter) -> str | None:
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    kind = ANNOTATIONS.get(name.strip("\"'").rpartition(".")[2])
    return kind or (parameter.name if parameter.name in OBJECTS else None)


def _by_name(parameter: inspect.Parameter) -> Any:
    return parameter.kind if parameter.kind is parameter.VAR_KEYWORD else parameter.KEYWORD_ONLY
