"""The one way this package compiles functions: to machine code on disk that loads without numba.

Importing numba and reading its own cache takes seconds in every worker. Here numba compiles a kernel once per
machine and kind of arguments, `machinecode` keeps the result, and a worker that finds it there only links and calls
it. Kernels run without Python's global lock, so plain threads can share the work, and there is no threading layer
that would not survive a fork.

What a kernel may do: it takes numbers and C-contiguous arrays, writes to arrays that its caller made, returns a
number or nothing, and allocates nothing, since memory would need numba's runtime. It may call other kernels.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from qloom.clustering import machinecode

F = TypeVar("F", bound=Callable[..., Any])

RESULTS: dict[str, Any] = {"none": ctypes.c_void_p, "int64": ctypes.c_int64, "float64": ctypes.c_double}
NOTHING = -2  # numba's status for a function that returned None
_loading = threading.Lock()


class Kernel:
    """A compiled function: loaded, or compiled first, when it is called with arguments of a new kind."""

    def __init__(self, function: FunctionType, fastmath: bool) -> None:
        self.function = function
        self.fastmath = fastmath
        self._loaded: dict[tuple[str, ...], Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        kinds = tuple(_kind(value) for value in args)
        if kinds not in self._loaded:
            with _loading:
                if kinds not in self._loaded:
                    self._loaded[kinds] = self._load(kinds)
        return self._loaded[kinds](args)

    def _load(self, kinds: tuple[str, ...]) -> Callable[..., Any]:
        address, returns = machinecode.load(self, kinds)
        fields = [field for kind in kinds for field in _fields(kind)]
        native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *fields)(address)
        result_type, name = RESULTS[returns], self.function.__name__

        def run(args: tuple[Any, ...]) -> Any:
            result, error = result_type(), ctypes.c_void_p()
            flat = [field for value in args for field in _flat(value)]
            if native(ctypes.addressof(result), ctypes.addressof(error), *flat) not in (0, NOTHING):
                raise ArithmeticError(f"{name}: a division by zero")
            return result.value

        return run


def _kind(value: Any) -> str:
    """The type of an argument; for arrays also the number of dimensions, and whether it may be written to."""
    if isinstance(value, np.ndarray):
        if not (value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative):
            raise TypeError("a kernel takes C-contiguous, aligned arrays in the machine's byte order only")
        return f"{value.dtype.name}:{value.ndim}:{'w' if value.flags.writeable else 'r'}"
    return "float64" if isinstance(value, float | np.floating) else "int64"


def _fields(kind: str) -> list[Any]:
    """The C types of an argument in numba's calling convention."""
    if ":" not in kind:
        return [RESULTS[kind]]
    dimensions = int(kind.split(":")[1])
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return [pointer, pointer, integer, integer, pointer, *[integer] * (2 * dimensions)]


def _flat(value: Any) -> tuple[Any, ...]:
    """The values of these fields; the two owners that numba would count references for are nobody."""
    if isinstance(value, np.ndarray):
        address = value.__array_interface__["data"][0]
        return (None, None, value.size, value.itemsize, address, *value.shape, *value.strides)
    return (value,)


def compiled(function: F) -> F:
    """Compile with strict floating point: the same bits from the same input."""
    return cast(F, Kernel(cast(FunctionType, function), fastmath=False))


def vectorised(function: F) -> F:
    """Compile with sums in any order, so that loops use the machine's vector units."""
    return cast(F, Kernel(cast(FunctionType, function), fastmath=True))


def in_threads(function: Callable[..., None], calls: Iterable[tuple[Any, ...]], threads: int) -> None:
    """Call `function` with each tuple of arguments; one thread means none besides the caller's."""
    if threads <= 1:
        for arguments in calls:
            function(*arguments)
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(function, *arguments) for arguments in calls]:
            future.result()
