"""Finding a program: the name of a built-in, `file.py[:function]`, or a job file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qloom.errors import InputError, closest
from qloom.job.job import Job
from qloom.job.program_process import run_in_process
from qloom.job.sync import run_alone
from qloom.worker import ProgramFinder

BUILT_IN = {"phases": "qloom.programs.phases", "clustering": "qloom.clustering.program"}


@dataclass(frozen=True)
class Program:
    """A program that can be run, and what workers need to import it."""

    source: str  # as the user named it; paths are absolute
    function: Callable[..., Any]  # async def or def
    files: dict[str, str] = field(default_factory=dict)  # module name -> file, for workers
    digest: str = ""  # of the file, to notice that it was changed

    @property
    def is_sync(self) -> bool:
        """Whether the program is a plain `def`, whose calls wait instead of being awaited."""
        return not inspect.iscoroutinefunction(self.function)

    @property
    def parameter_types(self) -> dict[str, type]:
        """The plain types that annotations or defaults ask for; programs that check their parameters know more."""
        if hasattr(self.function, "check_parameters"):
            return {}
        try:
            hints = typing.get_type_hints(self.function)
        except Exception:  # an annotation may be any text
            hints = {}
        defaults = {
            each.name: bool
            for each in inspect.signature(self.function).parameters.values()
            if isinstance(each.default, bool)
        }
        return defaults | {name: hint for name, hint in hints.items() if hint in (bool, int, float, str)}

    def call(self, job: Job, parameters: dict[str, Any], *, alone: bool = True) -> Coroutine[Any, Any, Any]:
        """Start the program; one that is synchronous and not `alone` in its run gets a process."""
        if self.is_sync and alone:
            return run_alone(self.function, job, **parameters)
        if self.is_sync:
            return run_in_process(self.function, job, self.files, **parameters)
        running: Coroutine[Any, Any, Any] = self.function(job, **parameters)
        return job.program_time.measure(running) if job.in_real_time else running

    def check(self, parameters: dict[str, Any]) -> None:
        """Refuse parameters that the program does not have."""
        signature = inspect.signature(self.function)
        if not signature.parameters:
            hint = f"{'' if self.is_sync else 'async '}def {self.function.__name__}(job, ...)"
            raise InputError(f"{self.source} needs a parameter for the job", hint=hint)
        known = list(signature.parameters)[1:]
        takes = f"it takes: {', '.join(known)}" if known else "it takes none"
        takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        for name in () if takes_any else parameters:
            if name not in known:
                hint = f"{closest(name, known)} {takes}".lstrip()
                raise InputError(f"{self.source} has no parameter {name!r}", hint=hint)
        try:
            signature.bind(None, **parameters)
        except TypeError as error:
            raise InputError(f"parameters of {self.source}: {error}", hint=takes) from None
        for name, value in parameters.items():
            is_truth = isinstance(signature.parameters[name].default, bool) if name in signature.parameters else False
            if (is_truth or self.parameter_types.get(name) is bool) and not isinstance(value, bool):
                raise InputError(f"{name} is true or false, not {value!r}", hint=f"--set {name}=true")
        check = getattr(self.function, "check_parameters", None)  # job files and built-in programs know more
        if check is not None:
            check(parameters)

    def notes_on(self, results: Sequence[Any]) -> list[str]:
        """What a user should know about the results of its jobs; job files know more about theirs."""
        note_on = getattr(self.function, "note_on", lambda result: None)
        notes = [note_on(result) for result in results if result is not None]
        return [note for note in dict.fromkeys(notes) if note is not None]

    def summary_of(self, result: Any, directory: Path | None) -> str:
        """A result as people read it: the program's own summary if it has one, else the result itself."""
        summarise = getattr(self.function, "summary_of", None)
        return str(result) if summarise is None else str(summarise(result, directory))


def load_program(text: str) -> Program:
    """The program that `text` names."""
    if text in BUILT_IN:
        try:
            return Program(text, importlib.import_module(BUILT_IN[text]).program)
        except ModuleNotFoundError as missing:
            raise InputError(f"{missing.name}: not installed", hint=f'pip install "qloom[{text}]"') from None
    name, _, function = text.partition(":")
    path = Path(name)
    if path.suffix == ".toml":
        from qloom.jobfile import program_from

        return Program(str(path.resolve()), program_from(path.resolve()), digest=_digest(path))
    if path.suffix != ".py":
        raise InputError(
            f"no program is called {text!r}", hint=f"give file.py, a job file, or one of {', '.join(BUILT_IN)}"
        )
    return _load_file(path.resolve(), function or "program")


def _load_file(path: Path, function: str) -> Program:
    digest = _digest(path)
    module_name = _module_name(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    _add_to_path(path.parent)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        what = "; ".join(str(error).splitlines())
        hint = "a program that awaits is an `async def`" if "'await' outside" in what else None
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {what}", hint=hint) from error
    found = getattr(module, function, None)
    if not inspect.isfunction(found):
        raise InputError(f"{path} has no function `{function}(job, ...)`", hint="or name another: file.py:function")
    return Program(f"{path}:{function}", found, {module_name: str(path)}, digest)


def find_modules(source: str) -> None:
    """Have classes of a program file found by name when results are read; the file is run only if one is met."""
    path = Path(source.partition(":")[0])
    if path.suffix == ".py" and path.is_file():
        sys.meta_path.append(ProgramFinder({_module_name(path): str(path)}))
        _add_to_path(path.parent)


def _add_to_path(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))  # as `python file.py` does


def _module_name(path: Path) -> str:
    return f"qloom_program_{path.stem}"


def _digest(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def from_function(function: Callable[..., Any]) -> Program:
    """A program that is already in memory."""
    if not inspect.isfunction(function):
        raise InputError(
            f"expected a program, got {function!r}", hint="write `async def program(job, ...)`, or `def`"
        )
    try:
        path = str(Path(inspect.getfile(inspect.unwrap(function))).resolve())
    except TypeError:
        path = function.__module__
    return Program(f"{path}:{function.__name__}", function)
