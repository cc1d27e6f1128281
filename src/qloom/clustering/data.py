"""Points to cluster: from a CSV or npy file of any dimension, or the blobs of the paper.

Every way in which a file can be wrong ends in one line that names the file and the place.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qloom.errors import InputError

ENCODING = "utf-8-sig"  # spreadsheets put a mark before the first number
Points = NDArray[np.float64]  # (points, dimensions)


@dataclass(frozen=True)
class Data:
    """Points, what to call them and their columns, and the labels they came with (for evaluation only)."""

    points: Points
    name: str
    truth: NDArray[np.int64] | None = None
    columns: tuple[str, ...] = ()  # empty if they have no names


def load(path: str | Path, label: str | int | None = None) -> Data:
    """Read points from `.npy` or CSV; `label` names (or counts) the column that holds known labels."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    points, truth, names = _read_npy(path, label) if path.suffix == ".npy" else _read_csv(path, label)
    return Data(check(points, str(path)), path.stem, truth, names)


def blobs(count: int, centers: int = 8, seed: int = 0x1337, spread: float = 1.0) -> Data:
    """The paper's data set: scikit-learn's `make_blobs(count, centers=8, random_state=0x1337, ...)`."""
    if count < 2:
        raise InputError(f"blobs={count}: at least 2 points are needed")
    # The legacy generator, in scikit-learn's order of draws, so that the points are the very same ones.
    random = np.random.RandomState(seed)
    middles = random.uniform(-20, 20, size=(centers, 2))
    sizes = [count // centers + (blob < count % centers) for blob in range(centers)]
    points = np.concatenate(
        [random.normal(loc=m, scale=spread, size=(s, 2)) for m, s in zip(middles, sizes, strict=True)]
    )
    truth = np.repeat(np.arange(centers), sizes)
    order = np.arange(count)
    random.shuffle(order)
    return Data(check(points[order], "blobs"), f"blobs-{count}", truth[order], ("x", "y"))


def check(points: NDArray[Any], where: str) -> Points:
    """The points as a contiguous array of doubles, or the reason why they cannot be clustered."""
    if points.dtype.kind not in "iuf":
        raise InputError(f"{where}: the array holds {points.dtype}, not numbers")
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or points.shape[1] == 0:
        raise InputError(f"{where}: an array of (points, dimensions) is needed, not of shape {points.shape}")
    if len(points) < 2:
        raise InputError(f"{where}: at least 2 points are needed, found {len(points)}")
    points = np.ascontiguousarray(points, np.float64)
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        raise InputError(f"{where}: point {int(np.argmin(finite)) + 1} holds NaN or infinity")
    if (points == points[0]).all():
        raise InputError(f"{where}: all points are equal, so there is nothing to cluster")
    return points


Table = tuple[NDArray[Any], NDArray[np.int64] | None, tuple[str, ...]]  # points, labels, names of columns


def _read_npy(path: Path, label: str | int | None) -> Table:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path}: not an npy file of numbers: {error}".splitlines()[0]) from None
    if label is None or array.ndim != 2:
        return array, None, ()
    column = _column(label, None, array.shape[1], path)
    return np.delete(array, column, axis=1), _numbered(list(array[:, column])), ()


def _read_csv(path: Path, label: str | int | None) -> Table:
    delimiter, header, width = _shape(path)
    columns = list(range(width))
    truth = None
    if label is not None:
        column = _column(label, header, width, path)
        columns.remove(column)
        truth = _numbered([row[column] for _, row in _rows(path, delimiter, header, width)])
    if not columns:
        raise InputError(f"{path}: no column is left besides the labels")
    names = tuple(header[column] for column in columns) if header else ()
    skip = next((number for number, _ in _rows(path, delimiter, header, None)), 1) - 1
    try:
        points = np.loadtxt(
            path, delimiter=delimiter, skiprows=skip, usecols=columns, ndmin=2, comments=None, encoding=ENCODING,
            quotechar='"',
        )  # fmt: skip
        if not _ragged(path, delimiter, width):
            return points, truth, names
    except ValueError:
        pass
    # numpy is fast, but it passes over ragged rows and cannot say which line is wrong: the slow reader can.
    numbers = []
    for line, row in _rows(path, delimiter, header, width):
        for column in columns:
            if not _is_number(row[column]):
                raise _no_number(path, line, row, column, header)
        numbers.append([float(row[column]) for column in columns])
    return np.array(numbers).reshape(len(numbers), len(columns)), truth, names


def _no_number(path: Path, line: int, row: list[str], column: int, header: list[str] | None) -> InputError:
    """What a field holds instead of a number; a text may be a known label, which clustering must not see."""
    name, field = header[column] if header else str(column + 1), row[column]
    by = name if header else str(column)  # as `label` takes it: a name, or a place counted from 0
    hint = f"if this column holds known labels, keep it out of the points: label={by}" if field else None
    return InputError(f"{path}, line {line}: column {name} holds {field!r}, not a number", hint=hint)


def _shape(path: Path) -> tuple[str | None, list[str] | None, int]:
    """The delimiter, the header if there is one, and the number of columns, from the first line with text."""
    try:
        with path.open(encoding=ENCODING) as lines:
            first = next((line for line in lines if line.strip()), None)
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file", hint="CSV or .npy is needed") from None
    if first is None:
        raise InputError(f"{path}: the file is empty")
    delimiter = next((mark for mark in ",;\t" if mark in first), None)
    fields = _split(first, delimiter)
    header = None if any(_is_number(field) for field in fields) else fields
    return delimiter, header, len(fields)


def _rows(path: Path, delimiter: str | None, header: list[str] | None, width: int | None) -> Any:
    """(line number, fields) of each row after the header; rows of another width are an error."""
    with path.open(encoding=ENCODING) as lines:
        rows = ((number, _split(line, delimiter)) for number, line in enumerate(lines, 1) if line.strip())
        for number, row in islice(rows, 0 if header is None else 1, None):
            if width is not None and len(row) != width:
                raise InputError(f"{path}, line {number}: {len(row)} columns, but {width} in the first line")
            yield number, row


def _ragged(path: Path, delimiter: str | None, width: int) -> bool:
    """Whether some line has another number of delimiters than the first, quoted ones aside."""
    if delimiter is None:
        return True
    with path.open(encoding=ENCODING) as lines:
        return any(line.count(delimiter) != width - 1 for line in lines if line.strip())


def _split(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    return [field.strip() for field in next(csv.reader([line.strip("\r\n")], delimiter=delimiter))]


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _column(label: str | int, header: list[str] | None, width: int, path: Path) -> int:
    """The index of the label column, given by name or by place (from 0; negative from the end)."""
    if header is not None and str(label) in header:
        return header.index(str(label))
    if str(label).lstrip("-").isdigit() and -width <= int(label) < width:
        return int(label) % width
    known = f"columns: {', '.join(header)}" if header else f"{width} columns, no header: give a number from 0"
    raise InputError(f"{path}: there is no label column {str(label)!r}", hint=known)


def _numbered(labels: list[Any]) -> NDArray[np.int64]:
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)
