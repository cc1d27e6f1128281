"""Names for values, made from what they contain: the same in every process, whatever PYTHONHASHSEED.

A task or payload is found again in the journal by this name, so that overlapping phases replay right.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import pathlib
import threading
import types
from asyncio import Future
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from qloom.errors import InputError
from qloom.model import Payload, QuantumWork, Task, TaskFunction, Work

MOST_KEYS = 10_000  # of tasks, in the cache
CALL_HINT = "await a call of the job to have its result"

_PLAIN = (type(None), bool, int, float, str, complex)
_CACHED = frozenset((type(None), bool, int, float, str))
_task_keys: dict[tuple[TaskFunction[..., Any], tuple[type, ...], str], str] = {}  # jobs of a run often make the same


def digest(*values: Any) -> str:
    """32 hexadecimal digits that stand for these values."""
    try:
        text = "".join([_TEXTS[type(value)](value) for value in values])
    except KeyError:  # something else than plain data
        return _digest_parts(values)
    except RecursionError:
        raise _contains_itself() from None
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest_parts(values: tuple[Any, ...]) -> str:
    """The same for values of any kind, fed to the hash part by part: an array is not copied."""
    hasher = hashlib.blake2b(digest_size=16)
    try:
        for value in values:
            _feed(hasher.update, value)
    except RecursionError:
        raise _contains_itself() from None
    return hasher.hexdigest()


def _contains_itself() -> InputError:
    return InputError("a value that contains itself cannot be kept or sent to a worker")


def task_key(task: Task) -> str:
    """What a task is: its function and arguments, or its command; not what it needs."""
    if task.command is not None:
        return digest("command", task.command, task.cwd, task.env, task.capture)
    function, args = task.function, task.args
    kinds = tuple(map(type, args))
    if task.kwargs or type(function) is not TaskFunction or not _CACHED.issuperset(kinds):
        return digest("call", function, args, task.kwargs)
    try:
        known = (function, kinds, repr(args))  # equal values may have keys that differ: 0.0 and -0.0, 1 and True
    except ValueError:  # a number of too many digits
        return digest("call", function, args, task.kwargs)
    key = _task_keys.get(known)
    if key is None:
        if len(_task_keys) >= MOST_KEYS:
            _task_keys.clear()
        key = _task_keys[known] = digest("call", function, args, task.kwargs)
    return key


def call_key(kind: str, works: Sequence[Work | QuantumWork]) -> str:
    """What a call of a program is: the names of its work, which are plain letters, digits and a dot."""
    names = [f"str:{len(work.id) + 2}:'{work.id}'" for work in works]
    text = f"str:{len(kind) + 2}:'{kind}'list:{len(names)}:{''.join(names)}"  # as `digest` has it, only quicker
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def payload_key(payload: Payload) -> str:
    """What a payload is: its problem, the number of shots and the options of its device."""
    options = payload.device_options
    content = (payload.kind, payload.body, payload.shots, payload.seconds, payload.device)
    return digest("quantum", *content, options) if options else digest("quantum", *content)


# Plain data as one text. It is what `_feed` gives the hash, only quicker: most tasks have no other arguments.


def _str_text(value: str) -> str:
    text = repr(value)
    return f"str:{len(text) if text.isascii() else len(text.encode())}:{text}"


def _int_text(value: int) -> str:
    text = hex(value)  # decimal digits have a limit
    return f"int:{len(text)}:{text}"


def _float_text(value: float) -> str:
    text = repr(value)
    return f"float:{len(text)}:{text}"


def _list_text(value: list[Any]) -> str:
    return f"list:{len(value)}:" + "".join([_TEXTS[type(item)](item) for item in value])


def _tuple_text(value: tuple[Any, ...]) -> str:
    return f"tuple:{len(value)}:" + "".join([_TEXTS[type(item)](item) for item in value])


def _dict_text(value: dict[Any, Any]) -> str:
    return f"mapping:{len(value)}:" + "".join(sorted([digest(key, item) for key, item in value.items()]))


def _task_function_text(value: TaskFunction[..., Any]) -> str:
    return f"tuple:3:str:7:'named'{_str_text(value.__module__)}{_str_text(value.__qualname__)}"


_TEXTS: dict[type, Callable[[Any], str]] = {
    type(None): lambda value: "NoneType:4:None",
    bool: lambda value: "bool:4:True" if value else "bool:5:False",
    str: _str_text,
    int: _int_text,
    float: _float_text,
    list: _list_text,
    tuple: _tuple_text,
    dict: _dict_text,
    TaskFunction: _task_function_text,
}


def _feed(update: Any, value: Any) -> None:
    kind = type(value)
    if kind in _PLAIN:
        text = (hex(value) if kind is int else repr(value)).encode()  # decimal digits have a limit
        update(b"%s:%d:" % (kind.__name__.encode(), len(text)) + text)
    elif kind in (list, tuple):
        update(b"%s:%d:" % (kind.__name__.encode(), len(value)))
        for item in value:
            _feed(update, item)
    elif isinstance(value, bytes | bytearray):
        update(b"%s:%d:" % (kind.__name__.encode(), len(value)))
        update(value)
    elif isinstance(value, Mapping):
        _feed_sorted(
            update,
            "mapping" if kind is dict else kind.__qualname__,
            [digest(key, item) for key, item in value.items()],
        )
    elif isinstance(value, set | frozenset):
        _feed_sorted(update, kind.__qualname__, [digest(item) for item in value])
    elif (content := getattr(value, "__qloom_digest__", None)) is not None:
        update(b"digest:" + str(content).encode())
    elif _is_array(value):
        import numpy

        update(f"array:{value.dtype.str}:{value.shape}:".encode())
        update(numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8) if value.size else b"")
    elif isinstance(value, enum.Enum):
        _feed(update, (kind.__module__, kind.__qualname__, value.name))
    elif isinstance(value, pathlib.PurePath):
        _feed(update, ("path", str(value)))
    elif isinstance(value, functools.partial):
        _feed(update, ("partial", value.func, value.args, value.keywords))
    elif isinstance(value, TaskFunction | types.FunctionType | types.BuiltinFunctionType | type):
        _feed_function(update, value)
    elif isinstance(value, types.MethodType):
        _feed(update, ("method", value.__func__, value.__self__))
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.metadata.get("qloom_content", True)]
        _feed(update, (kind.__module__, kind.__qualname__, {name: getattr(value, name) for name in names}))
    else:
        _feed_object(update, value)


def _feed_sorted(update: Any, kind: str, digests: list[str]) -> None:
    update(f"{kind}:{len(digests)}:".encode())
    for item in sorted(digests):
        update(item.encode())


def _is_array(value: Any) -> bool:
    kind = type(value)
    return kind.__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject


def _feed_function(update: Any, value: Any) -> None:
    name = value.__qualname__
    _feed(update, ("named", value.__module__, name))
    if "<" in name and isinstance(value, types.FunctionType):  # a lambda or a closure: its name says too little
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        cells = ["itself" if content is value else content for content in cells]  # a closure may call itself
        _feed(update, (_code(value.__code__), cells, value.__defaults__, value.__kwdefaults__))
    elif isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, types.ModuleType | None):
        _feed(update, value.__self__)  # a method of a built-in value: "text".upper


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """What a function does; functions and comprehensions inside it are among its constants."""
    constants = [_code(item) if isinstance(item, types.CodeType) else item for item in code.co_consts]
    return (code.co_code, constants, list(code.co_names))


_above = threading.local()  # the objects whose parts are being fed, outermost first


_ignored: tuple[str, ...] = ()  # packages


def ignore_content(package: str) -> None:
    """Know objects of a package by their type alone: they are different in every run, and change no result."""
    global _ignored
    if package not in _ignored:
        _ignored += (package,)


def _feed_object(update: Any, value: Any) -> None:
    """Any other object: what pickle would keep of it, part by part, so that sets and shared parts do not matter."""
    if type(value).__module__.startswith(_ignored):
        _feed(update, ("ignored", type(value).__qualname__))
        return
    try:
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if reducer is None else reducer(value)
    except Exception as error:
        raise InputError(
            f"a value of type {type(value).__name__} can neither be kept nor sent to a worker: {error}",
            hint=CALL_HINT if isinstance(value, Future) else "use plain data, arrays or dataclasses",
        ) from None
    if isinstance(reduced, str):
        _feed(update, ("global", type(value).__module__, reduced))
        return
    make, arguments, *rest = reduced
    parts = [list(part) if isinstance(part, Iterator) else part for part in rest]
    above = _above.__dict__.setdefault("objects", [])
    if id(value) in above:  # an object may lead back to one that it is a part of
        _feed(update, ("above", above.index(id(value))))
        return
    above.append(id(value))
    try:
        _feed(update, ("object", make, arguments, parts))
    finally:
        above.pop()
