"""A QPU's time scale from measured tasks: `python -m qloom.devices.fit FILE.csv`.

The model is set-up + circuits x shots x seconds per shot. What matters is the error as a share of a task's length, so
that is what is made small: a share of the predicted length, because shares of the measured one favour predictions
that are too short. Single tasks that took much longer for reasons of their own count less (Huber's weights). With
plain least squares the longest tasks alone would decide, and set-up would be anything.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qloom.errors import InputError, QloomError

HUBER = 1.345  # residuals of so many standard deviations begin to count less
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A time scale, and how well it reproduces the times it was made from."""

    set_up_s: float
    per_shot_s: float
    r2: float
    mean_absolute_error_s: float
    mean_relative_error: float
    tasks: int


def read_tasks(path: Path) -> tuple[Array, Array]:
    """Circuits x shots, and measured seconds. Columns: shots, qpu_seconds, and num_circuits or batches (else 1)."""
    work, seconds = [], []
    try:
        with path.open(newline="") as file:
            for number, row in enumerate(csv.DictReader(file), start=2):
                try:
                    circuits = float(row.get("num_circuits") or row.get("batches") or 1)
                    work.append(circuits * float(row["shots"]))
                    seconds.append(float(row["qpu_seconds"]))
                except (KeyError, TypeError, ValueError):
                    raise InputError(
                        f"{path}, line {number}: no shots and qpu_seconds", hint="both are needed"
                    ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    return np.array(work), np.array(seconds)


def fit(work: Array, seconds: Array) -> Fit:
    """Least squares of relative errors, weighted anew until it settles; neither figure is below zero."""
    if len(work) < 3 or len(np.unique(work)) < 2:
        raise InputError("a fit needs at least three tasks of at least two lengths")
    if not (np.isfinite(work).all() and np.isfinite(seconds).all() and (work > 0).all() and (seconds > 0).all()):
        raise InputError("shots and seconds must be finite and above zero")
    table = np.column_stack([np.ones_like(work), work])
    weights = np.ones_like(work)
    figures = np.zeros(2)
    predicted = seconds
    for _ in range(200):
        before, figures = figures, _solve(table, seconds, np.sqrt(weights) / predicted)
        predicted = np.maximum(table @ figures, 1e-9)
        errors = np.abs(seconds - predicted) / predicted
        spread = max(1.4826 * float(np.median(errors)), 1e-12)
        weights = np.minimum(1.0, HUBER * spread / np.maximum(errors, 1e-300))
        if np.allclose(before, figures, rtol=1e-9, atol=0.0):
            break
    off = seconds - table @ figures
    around = float(((seconds - seconds.mean()) ** 2).sum())
    return Fit(
        set_up_s=float(figures[0]),
        per_shot_s=float(figures[1]),
        r2=1 - float((off**2).sum()) / around if around > 0 else 1.0,
        mean_absolute_error_s=float(np.abs(off).mean()),
        mean_relative_error=float((np.abs(off) / seconds).mean()),
        tasks=len(work),
    )


def _solve(table: Array, seconds: Array, scale: Array) -> Array:
    figures: Array = np.asarray(np.linalg.lstsq(table * scale[:, None], seconds * scale, rcond=None)[0], np.float64)
    for kept in (0, 1):  # a figure below zero means that the other one explains all
        if figures[1 - kept] < 0:
            column = table[:, kept] * scale
            figures = np.zeros(2)
            figures[kept] = float(column @ (seconds * scale)) / float(column @ column)
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Print the fit of each file."""
    parser = argparse.ArgumentParser(prog="python -m qloom.devices.fit", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.csv")
    parser.add_argument("--json", action="store_true", help="one JSON line for each file")
    options = parser.parse_args(arguments)
    for path in options.files:
        try:
            found = fit(*read_tasks(path))
        except QloomError as error:
            print(f"fit: {error}", file=sys.stderr)
            return error.exit_code
        if options.json:
            print(json.dumps({"file": path.name, **asdict(found)}))
            continue
        print(f"{path.name}: {found.tasks} tasks")
        print(f"  set-up    {found.set_up_s:.3f} s")
        print(f"  per shot  {found.per_shot_s * 1e3:.4f} ms")
        print(f"  R2        {found.r2:.4f}")
        print(f"  error     {found.mean_absolute_error_s:.2f} s, {found.mean_relative_error:.1%} of a task (means)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
