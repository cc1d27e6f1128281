"""Machine code of kernels: made by numba once, kept in a file, linked by llvmlite.

A file is named after everything its code depends on: what the kernel and those it calls do, the kinds of arguments,
llvmlite, and the processor, since the nodes of a cluster may share a cache and differ. Whoever can write to the cache
can run code as its user: it lies beside this package, where numba would keep its own, or in the user's cache
directory, and a file that others could have written is not read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

if TYPE_CHECKING:
    from qloom.clustering.compiled import Kernel

FORMAT = "qloom-kernel-1"
CHECKSUM_BYTES = 16

_engines: list[Any] = []  # they own the code, which is called until the process ends


def load(kernel: Kernel, kinds: tuple[str, ...]) -> tuple[int, str]:
    """The address of a kernel's code for arguments of these kinds, and the type that it returns."""
    name = f"{kernel.function.__name__}-{_digest(kernel, kinds)}.kernel"
    content = next(filter(None, (_read(folder / name) for folder in _folders())), None)
    if content is None:
        content = _compile(kernel, kinds)
        _keep(name, content)
    symbol, returns, code = content.split(b"\n", 2)
    engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(symbol.decode())), returns.decode()


def _compile(kernel: Kernel, kinds: tuple[str, ...]) -> bytes:
    """The symbol, the type of the result and the code, a line each; this alone needs numba."""
    import numba

    signature = tuple(_numba_type(numba, kind) for kind in kinds)
    dispatcher = _dispatcher(numba, kernel)
    dispatcher.compile(signature)
    made = dispatcher.overloads[signature]
    module: Any = llvm.parse_assembly(dispatcher.inspect_llvm(signature))
    code: bytes = _machine().emit_object(module)
    return b"\n".join([made.fndesc.llvm_func_name.encode(), str(made.signature.return_type).encode(), code])


def _dispatcher(numba: Any, kernel: Kernel) -> Any:
    """The kernel for numba, and each kernel that it calls; without what only Python's own calls would need."""
    names = dict(kernel.function.__globals__)
    names |= {name: _dispatcher(numba, inner) for name, inner in _called(kernel)}
    function = FunctionType(kernel.function.__code__, names, kernel.function.__name__)
    return numba.njit(
        nogil=True, fastmath=kernel.fastmath, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False
    )(function)


def _called(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    for name in kernel.function.__code__.co_names:
        value = kernel.function.__globals__.get(name)
        if isinstance(value, type(kernel)):
            yield name, value


def _numba_type(numba: Any, kind: str) -> Any:
    dtype, *shape = kind.split(":")
    scalar = numba.from_dtype(np.dtype(dtype))
    if not shape:
        return scalar
    return numba.types.Array(scalar, int(shape[0]), "C", readonly=shape[1] == "r")


@functools.cache
def _machine() -> Any:
    """This processor, with all it can do."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target: Any = llvm.Target.from_default_triple()
    cpu, features = _processor()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


@functools.cache
def _processor() -> tuple[str, str]:
    features: Any = llvm.get_host_cpu_features()
    return llvm.get_host_cpu_name(), features.flatten()


def _digest(kernel: Kernel, kinds: tuple[str, ...]) -> str:
    made_for = (llvmlite.__version__, llvm.get_default_triple(), _processor())
    content = repr((FORMAT, *made_for, kinds, _what_it_does(kernel)))
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _what_it_does(kernel: Kernel) -> list[Any]:
    code, known = kernel.function.__code__, kernel.function.__globals__
    constants = [(name, known[name]) for name in code.co_names if isinstance(known.get(name), int | float)]
    inner = [_what_it_does(called) for _, called in _called(kernel)]
    return [code.co_code, code.co_consts, code.co_names, code.co_varnames, kernel.fastmath, constants, inner]


def _folders() -> list[Path]:
    """Where code may lie, the first choice first."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(given)]
    own = Path(__file__).parent / "__pycache__"
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return [own, Path(cache) / "qloom"]
    try:
        return [own, Path.home() / ".cache" / "qloom"]
    except RuntimeError:  # a user without a home, as in some containers
        return [own]


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            trusted = (os.getuid(), Path(__file__).stat().st_uid)  # who runs this, and who installed it
            if found.st_uid not in trusted or found.st_mode & 0o022:
                return None
            content = file.read()
    except OSError:
        return None
    checksum, content = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
    return content if checksum == _checksum(content) else None


def _keep(name: str, content: bytes) -> None:
    """Write the code to the first folder that can be written to; without one, it is made again next time."""
    for folder in _folders():
        part = folder / f"{name}.{secrets.token_hex(4)}"  # workers may compile the same kernel at once
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.touch(mode=0o644)
            part.write_bytes(_checksum(content) + content)
            part.replace(folder / name)
            return
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest()
