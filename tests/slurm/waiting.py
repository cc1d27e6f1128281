"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], within_s: float = 120.0) -> None:
    """Returns as soon as it holds; fails if it does not in time."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not so within {within_s:g} s"
        time.sleep(0.05)
