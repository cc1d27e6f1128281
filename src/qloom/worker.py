"""A worker: one process per node that runs tasks, sent over its standard input, one at a time.

Run as a file, not as a module, so that it starts without importing anything that a task does not need.
A message is eight bytes of length and a pickle; the pickles come from the user's own driver. What a task prints goes
to a file of that task (`output.py`), what is printed between tasks to the worker's standard error, a log of the
driver's.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import struct
import sys
import time
from typing import Any, BinaryIO

if __name__ == "__main__":  # run as a file: its neighbours are found beside the package, and not in it
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from qloom.output import TaskOutput

HEADER = struct.Struct("!Q")
PR_SET_PDEATHSIG = 1
OUTPUT_TAIL = 4000


def die_with_parent(by: int = signal.SIGKILL) -> None:
    """A worker whose driver was killed must not go on holding a core."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    except (OSError, AttributeError):
        pass  # not Linux: the end of the standard input ends an idle worker all the same


def read_message(stream: BinaryIO) -> bytes | None:
    """The next message; None when the driver has gone."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    data = stream.read(HEADER.unpack(header)[0])
    return data


def write_message(stream: BinaryIO, data: bytes) -> None:
    """Send one message whole."""
    stream.write(HEADER.pack(len(data)) + data)
    stream.flush()


class ProgramFinder:
    """Imports the user's program file under the name that the driver gave it."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Part of Python's import protocol."""
        if name not in self._files:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, self._files[name])


def set_up(options: dict[str, Any]) -> None:
    """See modules where the driver sees them."""
    sys.path[:] = options["path"]
    sys.meta_path.append(ProgramFinder(options["programs"]))
    for module in options.get("preload", ()):
        __import__(module)


@functools.lru_cache(maxsize=256)
def load_function(pickled: bytes) -> Any:
    """A function comes pickled on its own, so that it is unpickled once and not for each task."""
    function = pickle.loads(pickled)  # noqa: S301  from the user's own driver
    return getattr(function, "function", function)  # what a decorated one stands for


def run_call(pickled_function: bytes | bytearray, args: Any, kwargs: Any) -> tuple[float, Any]:
    """Call a function; one that came by value (a bytearray) is unpickled each time, as it may hold state."""
    if isinstance(pickled_function, bytes):
        return timed(load_function(pickled_function), *args, **kwargs)
    return timed(load_function.__wrapped__(bytes(pickled_function)), *args, **kwargs)


def timed(function: Any, *args: Any, **kwargs: Any) -> tuple[float, Any]:
    """For how many seconds the code of a task ran, without the imports that it takes to find it; and its result."""
    began_s = time.perf_counter()
    result = function(*args, **kwargs)
    return round(time.perf_counter() - began_s, 6), result


def run_command(
    argv: list[str], cwd: str | None, env: dict[str, str], capture: list[str], *, echo: bool = False
) -> dict[str, Any]:
    """Run a program; the driver judges how it ended. With `echo`, print what it prints."""
    import subprocess

    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        return {"exit_code": 127, "stdout": "", "stderr": f"cannot run {argv[0]}: {error.strerror}", "files": {}}
    with process:
        stdout, stderr = _tails(process, echo)
    files = {}
    for name in capture:
        path = os.path.join(cwd or ".", name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                files[name] = file.read()
    return {"exit_code": process.returncode, "stdout": stdout, "stderr": stderr, "files": files}


def _tails(process: Any, echo: bool) -> list[str]:
    """The end of what a process prints, on each of its outputs, until it has closed them."""
    import select

    tails = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    printing = select.poll()
    for source in tails:
        printing.register(source, select.POLLIN)
    still_open = len(tails)
    while still_open:
        for source, _ in printing.poll():
            data = os.read(source, 1 << 16)
            if not data:
                printing.unregister(source)
                still_open -= 1
            if echo and data:
                _print(data)
            tails[source] += data
            del tails[source][:-OUTPUT_TAIL]
    return [tail.decode(errors="replace") for tail in tails.values()]


def _print(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


# The dictionary behind os.environ, in bytes: to look at it takes a microsecond, at os.environ itself a hundred.
VARIABLES: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]


def answer(message: bytes, output: TaskOutput, start: str) -> bytes:
    """Do what a message asks for; failures are answers too. The next task starts as this one did."""
    directory, variables, log = os.getcwd(), VARIABLES, ""
    try:
        action, arguments, environment, log = pickle.loads(message)  # noqa: S301  from the user's own driver
        if log:
            output.begin(log)
        os.environ.update(environment)
        variables = dict(VARIABLES)
        if action == "set_up":
            result = timed(set_up, arguments)[0], start
        elif action == "call":
            result = run_call(*arguments)
        else:
            result = timed(functools.partial(run_command, echo=bool(log)), *arguments)
        return b"+" + dump(result)
    except BaseException as error:
        import traceback

        if isinstance(error, KeyboardInterrupt):
            raise
        exited = f"exited with {error.code!r}" if isinstance(error, SystemExit) else None
        what = exited or f"raised {type(error).__name__}: {text_of(error)}"
        return b"-" + pickle.dumps((what, "".join(traceback.format_exception(error))))
    finally:
        if variables != VARIABLES:
            for name in {os.fsdecode(name) for name in (*VARIABLES, *variables)}:
                os.environ.pop(name, None)
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()})
        os.chdir(directory)
        if log:
            output.end()


def text_of(error: BaseException) -> str:
    """The message of an exception, whose own code may fail."""
    try:
        return str(error)
    except Exception:
        return "its message cannot be shown"


def dump(value: Any) -> bytes:
    """Pickle a result; classes of the program's main module need a little more."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value))


def main() -> None:
    """Set up as the driver asks, here or in a worker that a warm parent forks; then answer messages."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    with os.fdopen(os.dup(0), "rb") as messages:
        first = read_message(messages)  # the driver sends no other before it has the answer
    if first is None:
        return
    options = pickle.loads(first)[1]  # noqa: S301  from the user's own driver
    if options.get("keep_warm_s"):
        from qloom.warm import join_parent

        join_parent(first, options, set_up, serve)
    serve(first, "cold")


def serve(first: bytes, start: str) -> None:
    """Answer messages until the driver goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    messages = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    output = TaskOutput()  # what tasks print must not mix with the answers
    message: bytes | None = first
    while message is not None:
        write_message(answers, answer(message, output, start))
        message = read_message(messages)


if __name__ == "__main__":
    main()
