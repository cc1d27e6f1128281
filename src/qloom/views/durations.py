"""Seconds as people say them."""

from __future__ import annotations


def human_s(seconds: float) -> str:
    """`0.3 s`, `12.3 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def human_us(microseconds: int) -> str:
    """The same for the journal's microseconds."""
    return human_s(max(0, microseconds) / 1e6)
