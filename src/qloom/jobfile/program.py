"""A job file as a program: the same calls that a Python program makes, phase by phase."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from qloom.answers import Answer
from qloom.errors import InputError
from qloom.jobfile.files import QUBO_SHOTS, WorkFiles, is_met, read_payload, read_value, write_answer
from qloom.jobfile.model import ClassicalPhase, JobFile, PayloadPhase, Phase, QuantumCommandPhase, TaskTable
from qloom.jobfile.read import as_text, file_name, fill, input_problem, name_problem, read_by_program, read_jobfile
from qloom.model import CommandResult, Payload, Task, command

if TYPE_CHECKING:
    from qloom.job.job import Job

ProgramFunction = Callable[..., Coroutine[Any, Any, dict[str, Any]]]
UNREAD = (
    "commands do not run in virtual time, so the loop went to max_iterations "
    "(--profile RUN takes the path of a real run)"
)


def program_from(path: Path) -> ProgramFunction:
    """The program that a job file describes; its signature shows the file's parameters."""
    path = path.resolve()
    file = read_jobfile(path)

    def check_parameters(given: Mapping[str, Any]) -> None:
        _fill_in(file, path, given)

    def note_on(result: Mapping[str, Any]) -> str | None:
        unread = file.loop is not None and file.loop.until is not None and result["value"] is None
        return UNREAD if unread else None

    async def program(job: Job, **parameters: Any) -> dict[str, Any]:
        return await _JobFileRun(file, path, job, _fill_in(file, path, parameters)).run()

    shown = [inspect.Parameter("job", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name, default in file.parameters.items():
        shown.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    decorated = cast(Any, program)
    decorated.__doc__ = f"The job file {path}."
    decorated.__signature__ = inspect.Signature(shown)
    decorated.check_parameters = check_parameters
    decorated.note_on = note_on
    return program


def _fill_in(file: JobFile, path: Path, given: Mapping[str, Any]) -> dict[str, str]:
    """All values as text; refuses what a parameter cannot be, and input files that are not there."""
    values = {"source": str(path.parent), "iteration": "0"}
    for name, default in file.parameters.items():
        value = given.get(name, default)
        if not _fits(value, default):
            raise InputError(f"{path}: parameter {name} cannot be {value!r}", hint=f"it is {default!r} in the file")
        values[name] = as_text(value)
    for template in file.files:
        name = fill(template, values)
        if problem := name_problem(name) or input_problem(path.parent, name):
            raise InputError(f"{path}: files: {problem}")
    return values


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, str):
        return isinstance(value, bool | int | float | str)
    return not isinstance(value, bool) and isinstance(value, int if isinstance(default, int) else int | float)


class _JobFileRun:
    """One job on its way through the phases."""

    def __init__(self, file: JobFile, path: Path, job: Job, values: dict[str, str]) -> None:
        self._file = file
        self._source = path.parent
        self._job = job
        self._values = values
        self._read = read_by_program(file)
        self._files = WorkFiles(job.output_dir)

    async def run(self) -> dict[str, Any]:
        """All phases; the loop until its condition is met or its limit is reached."""
        self._files.copy_inputs(self._source, self._names(self._file.files), self._names(self._read))
        loop = self._file.loop
        for place, phase in self._file.phases("before"):
            await self._phase(place, phase)
        iterations, converged, value = 0, False, None
        while iterations < (loop.max_iterations if loop else 1) and not converged:
            iterations += 1
            self._values["iteration"] = str(iterations)
            for place, phase in self._file.phases("loop"):
                await self._phase(place, phase)
            value, converged = self._condition()
        for place, phase in self._file.phases("after"):
            await self._phase(place, phase)
        return {"iterations": iterations, "converged": converged, "value": value, "output": "."}

    def _condition(self) -> tuple[Any, bool]:
        until = self._file.loop.until if self._file.loop else None
        if until is None:
            return None, False
        name = self._name(until.file)
        content = self._files.content(name)
        if content is None:  # virtual time, and no profile that knows it: the loop goes to its limit
            return None, False
        value = read_value(until, name, content)
        return value, is_met(until, name, value)

    async def _phase(self, place: int, phase: Phase) -> None:
        label = phase.name or f"{phase.kind}-{place}"
        match phase:
            case ClassicalPhase():
                several = len(phase.task) > 1
                tasks = [
                    self._task(table, f"{label}-{number}" if several else label)
                    for number, table in enumerate(phase.task, 1)
                ]
                for task, result in zip(tasks, await self._job.classical(*tasks), strict=True):
                    self._files.take(task.name, task.capture, result)
            case PayloadPhase():
                await self._send(phase, label)
            case QuantumCommandPhase():
                task = self._command(phase.command, label, phase.outputs)
                payload = Payload("command", task, seconds=phase.expected_s, device=phase.device, name=label)
                self._files.take(label, task.capture, await self._job.quantum(payload))

    async def _send(self, phase: PayloadPhase, label: str) -> None:
        name, result = self._name(phase.payload), self._name(phase.result)
        content = self._files.content(name)
        if content is None:  # virtual time: the device is busy for as long, with nothing to solve
            payload = Payload("delay", None, phase.shots or QUBO_SHOTS, phase.expected_s, phase.device)
        else:
            payload = read_payload(name, content, shots=phase.shots, seconds=phase.expected_s, device=phase.device)
        instead = None
        if phase.or_classical is not None:
            instead = self._task(phase.or_classical, f"{label}-classical", result)
        answer = await self._job.quantum(replace(payload, name=label), or_classical=instead)
        if isinstance(answer, CommandResult) and instead is not None:
            self._files.take(instead.name, instead.capture, answer)
        else:
            self._files.put(result, write_answer(answer) if isinstance(answer, Answer) else None)

    def _task(self, table: TaskTable, label: str, *also_captured: str) -> Task:
        task = self._command(table.command, table.name or label, table.outputs, also_captured)
        return task.needs(
            nodes=table.nodes,
            cpus=table.cpus,
            memory_mb=table.memory_mb,
            ranks=table.ranks,
            expected_s=table.expected_s,
        )

    def _command(self, words: list[str], label: str, outputs: list[str], also_captured: tuple[str, ...] = ()) -> Task:
        captured = [*also_captured, *self._names([output for output in outputs if output in self._read])]
        argv = [fill(word, self._values) for word in words]
        return command(*argv, name=label, cwd=self._files.cwd, capture=tuple(dict.fromkeys(captured)))

    def _name(self, template: str) -> str:
        return file_name(template, self._values)

    def _names(self, templates: list[str]) -> list[str]:
        return [self._name(template) for template in templates]
