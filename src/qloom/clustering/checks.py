"""What the clustering program's parameters must be; said before anything runs, by the program and by its exports."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from qloom.clustering.data import Data, blobs, load
from qloom.clustering.qubo import PENALTIES, WEIGHTS
from qloom.errors import InputError

WHOLE = ("iterations", "k_min", "k_max", "linkage_k", "min_pts", "shots", "exact_limit", "sample", "threads")
REAL = ("threshold", "quantum_s", "eps_min", "eps_max")
TRUE_OR_FALSE = ("score", "gap", "speculate")
PLOTS = (None, "", "png", "svg")


def checked_points(values: Mapping[str, Any]) -> Data:
    """The points to cluster, if all parameters of the program (by their names) are sound."""
    _require_extra(bool(values["plot"]))
    _require_numbers(values)
    if not all(isinstance(values[name], bool) for name in TRUE_OR_FALSE):
        raise InputError("score, gap and speculate are true or false")
    points = _points(values["data"], values["blobs"], values["label"])
    _require_choices(values)
    return points


def _require_extra(plot: bool) -> None:
    """Say what workers, or the end of a run, would only find out later."""
    needed = ("numba", "llvmlite", "quitefastmst", "scipy", *(("matplotlib",) if plot else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise InputError(f"{', '.join(missing)}: not installed", hint='pip install "qloom[clustering]"')


def _require_numbers(values: Mapping[str, Any]) -> None:
    """Parameters come from the command line: say which one is no number."""
    for name in WHOLE:
        if isinstance(values[name], bool) or not isinstance(values[name], int):
            raise InputError(f"{name} must be a whole number, not {values[name]!r}", hint=f"--set {name}=4")
    for name in REAL:
        value = values[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{name} must be a number, not {value!r}", hint=f"--set {name}=0.5")


def _points(data: Any, count: Any, label: str | int | None) -> Data:
    if (data is None) == (count is None):
        raise InputError("one of data and blobs is needed", hint="--set data=points.csv or --set blobs=80000")
    return blobs(count) if count is not None else load(str(data), label)


def _require_choices(values: Mapping[str, Any]) -> None:
    weights, penalty, plot = values["weights"], values["penalty"], values["plot"]
    if values["iterations"] < 1 or values["shots"] < 1:
        raise InputError("iterations and shots must be at least 1")
    if weights not in WEIGHTS:
        raise InputError(f"there are no weights {weights!r}", hint=" or ".join(WEIGHTS))
    if penalty is not None and penalty not in PENALTIES:
        raise InputError(f"there is no penalty {penalty!r}", hint=" or ".join(PENALTIES))
    if plot not in PLOTS:
        raise InputError(f"plot must be png, svg or empty, not {plot!r}")
    if (values["eps_min"] is None) != (values["eps_max"] is None):
        raise InputError("eps_min and eps_max belong together", hint="give both or none")
