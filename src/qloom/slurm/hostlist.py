"""Slurm's short form of node names, `c[1-3,7],gpu-a[01-02]`, written out."""

from __future__ import annotations

import re

_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_RANGE = re.compile(r"\[([^\]]*)\]")


def expand(text: str) -> list[str]:
    """The names, in order; none for what Slurm prints when there are none."""
    if text in ("", "(null)", "None assigned", "n/a"):
        return []
    return [name for item in _ITEM.findall(text) for name in _expand_one(item)]


def _expand_one(item: str) -> list[str]:
    found = _RANGE.search(item)
    if found is None:
        return [item]
    before, after = item[: found.start()], item[found.end() :]
    numbers = [number for part in found[1].split(",") for number in _numbers(part)]
    return [f"{before}{number}{rest}" for number in numbers for rest in _expand_one(after)]


def _numbers(part: str) -> list[str]:
    """`3`, or `08-11` with its leading zeros."""
    first, dash, last = part.partition("-")
    return [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)] if dash else [first]
