"""The one way this package compiles functions: cached on disk, and without Python's global lock.

The cache keeps workers from compiling again; without the lock, plain threads can share the work, and there is
no threading layer that would not survive a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with strict floating point: the same bits from the same input."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def vectorised(function: F) -> F:
    """Compile with sums in any order, so that loops use the machine's vector units."""
    return cast(F, numba.njit(cache=True, nogil=True, fastmath=True)(function))


def in_threads(function: Callable[..., None], calls: Iterable[tuple[Any, ...]], threads: int) -> None:
    """Call `function` with each tuple of arguments; one thread means none besides the caller's."""
    if threads <= 1:
        for arguments in calls:
            function(*arguments)
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(function, *arguments) for arguments in calls]:
            future.result()
