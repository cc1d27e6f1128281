"""A program as a flow. Only job files and the clustering program have a static shape.

The phases of a job file are commands already. The steps of the clustering program are `qloom step` commands, its
input the points and the settings.
"""

from __future__ import annotations

import inspect
import io
import json
from itertools import chain
from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.export.flow import (
    COMPUTE,
    ONE_NODE,
    QUANTUM,
    Flow,
    QuantumPart,
    Step,
    StopCondition,
    made_by,
    require_distinct,
)
from qloom.jobfile import program_from
from qloom.jobfile.files import WorkDirectory
from qloom.jobfile.model import LIMITS, ClassicalPhase, JobFile, PayloadPhase, Phase, QuantumCommandPhase, TaskTable
from qloom.jobfile.model import Until as Condition
from qloom.jobfile.read import as_text, fill, read_by_program, read_jobfile
from qloom.model import Task, command

EVERY = ("settings.json", "points.npy", "truth.npy")
LEFT_OUT = ("data", "blobs", "label", "plot", "speculate")  # the points are a file here, and nothing runs early
MADE_BY_SCORE = ("state.json", "best.npy", "labels.csv", "summary.json", "status.json")
WHEN: tuple[Any, ...] = ("before", "loop", "after")
ASKED = "qloom-asked.json"


def flow_of(
    program: str, parameters: dict[str, Any], seed: int = 0, *, or_classical: bool = False, recorded: bool = False
) -> Flow:
    """The steps of a program; refuses one whose steps are only known while it runs.

    `recorded`: they are for an engine of qloom's, which wants to know what commands made.
    """
    if program == "clustering":
        return flow_of_clustering(parameters, seed, or_classical=or_classical)
    if Path(program).suffix == ".toml":
        return flow_of_jobfile(Path(program), parameters, seed, recorded=recorded)
    raise InputError(
        f"{program} has no static shape: which steps a Python program runs is only known while it runs",
        hint="describe its phases in a job file, or run it with: qloom run --strategy workflow",
    )


def flow_of_clustering(given: dict[str, Any], seed: int, *, or_classical: bool = False) -> Flow:
    """The flow of the clustering program with these parameters."""
    from qloom.clustering.parameters import checked_points
    from qloom.clustering.program import program
    from qloom.export.steps import Settings

    try:
        bound = inspect.signature(program).bind(None, **given)
    except TypeError as error:
        raise InputError(f"parameters of clustering: {error}") from None
    bound.apply_defaults()
    values = dict(bound.arguments)
    del values["job"]
    data = checked_points(values)
    parameters = {name: value for name, value in values.items() if name not in LEFT_OUT}
    settings = Settings(data, parameters, seed)
    methods = list(settings.ranges.methods)
    threads = settings.scoring.threads
    kept = {"name": data.name, "seed": seed, "parameters": parameters}
    files: dict[str, Path | bytes] = {
        "settings.json": json.dumps(kept, indent=2).encode() + b"\n",
        "points.npy": _npy(data.points),
    }
    if data.truth is not None:
        files["truth.npy"] = _npy(data.truth)
    labels = tuple(f"{method}.npy" for method in methods)
    numbered = ("--iteration", "{iteration}")
    clusterings = tuple(
        Step(method, COMPUTE, ("qloom", "step", "cluster", method, *numbered), outputs=(f"{method}.npy",),
             reads=(*EVERY, "common.npz"))
        for method in methods
    )  # fmt: skip
    qubo = Step(
        "qubo", ONE_NODE, ("qloom", "step", "qubo", *numbered), outputs=("qubo.json", "graph.json", "cells.npy"),
        reads=(*EVERY, *labels, "state.json"), cpus=threads,
    )  # fmt: skip
    sent = QuantumPart("qubo.json", "answer.json", candidate=or_classical)
    quantum = Step("quantum", QUANTUM, payload=sent, outputs=("answer.json",), reads=("qubo.json",))
    score = Step(
        "score", ONE_NODE, ("qloom", "step", "score", *numbered), outputs=MADE_BY_SCORE, cpus=threads,
        reads=(*EVERY, "common.npz", "graph.json", "cells.npy", "answer.json", "state.json", "best.npy"),
    )  # fmt: skip
    return Flow(
        name="clustering",
        files=files,
        before=((Step("prepare", ONE_NODE, ("qloom", "step", "prepare"), outputs=("common.npz",), reads=EVERY),),),
        body=(clusterings, (qubo,), (quantum,), (score,)),
        max_iterations=values["iterations"],
        until=StopCondition("status.json", "proceed", "equals", False),
        loops=True,
        results=("labels.csv", "summary.json"),
    )


def _npy(array: Any) -> bytes:
    import numpy

    buffer = io.BytesIO()
    numpy.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def flow_of_jobfile(path: Path, given: dict[str, Any], seed: int = 0, *, recorded: bool = False) -> Flow:
    """The flow of a job file; its commands leave records of what they made if they are to be `recorded`."""
    path = path.resolve()
    file = read_jobfile(path)
    for name in given:
        if name not in file.parameters:
            known = ", ".join(file.parameters) or "none"
            raise InputError(f"{path}: there is no parameter {name!r}", hint=f"it takes: {known}")
    program_from(path).check_parameters(given)  # type: ignore[attr-defined]
    reader = _Reader(path, _values(file, given), seed, read_by_program(file) if recorded else None, _asks_again(file))
    phases = {when: tuple(reader.steps(place, phase) for place, phase in file.phases(when)) for when in WHEN}
    loop = file.loop
    flow = Flow(
        name=file.name,
        files={**input_files(path, given)},
        before=phases["before"],
        body=phases["loop"],
        after=phases["after"],
        max_iterations=loop.max_iterations if loop else 1,
        until=reader.until(loop.until) if loop and loop.until else None,
        loops=loop is not None,
        results=tuple(name for name in made_by([*chain(*phases.values())]) if name != ASKED),
    )
    return require_distinct(flow)


def input_files(path: Path, given: dict[str, Any]) -> dict[str, Path]:
    """The files that a job file brings, by the names that its commands see."""
    file = read_jobfile(path)
    names = [fill(name, {"source": str(path.parent), **_values(file, given)}) for name in file.files]
    return {name: path.parent / name for name in names}


def _asks_again(file: JobFile) -> bool:
    """Whether a payload may be sent more than once."""
    return file.loop is not None or sum(isinstance(phase, PayloadPhase) for phase in file.phase) > 1


def _values(file: JobFile, given: dict[str, Any]) -> dict[str, str]:
    return {name: as_text(given.get(name, default)) for name, default in file.parameters.items()}


def task_of(words: list[str], name: str, captured: list[str]) -> Task:
    """A step's command as the task that the job file's program asks for: the journal knows both as one."""
    return command(*words, name=name, cwd=WorkDirectory(Path.cwd()), capture=tuple(captured))


class _Reader:
    """Phases as steps; parameters are filled in, the number of the iteration is left open."""

    def __init__(
        self, path: Path, values: dict[str, str], seed: int, captured: list[str] | None, asks_again: bool
    ) -> None:
        self._path = path
        self._values = {"source": str(path.parent), "iteration": "{iteration}", **values}
        self._seed = seed
        self._captured = captured  # files that the program reads; None: nobody asks what commands made
        self._asked = ASKED if asks_again else None

    def text(self, template: str) -> str:
        """A text without parameters."""
        return fill(template, self._values)

    def steps(self, place: int, phase: Phase) -> tuple[Step, ...]:
        """The steps of one phase."""
        label = phase.name or f"{phase.kind}-{place}"
        match phase:
            case ClassicalPhase():
                several = len(phase.task) > 1
                return tuple(
                    self._step(table, f"{label}-{number}" if several else label, several)
                    for number, table in enumerate(phase.task, 1)
                )
            case PayloadPhase():
                return (self._payload(phase, label),)
            case QuantumCommandPhase():
                said = [] if phase.expected_s is None else ["--seconds", str(phase.expected_s)]
                said += [] if phase.device is None else ["--device", phase.device]
                words = self._words(phase.command, label, phase.outputs, "--quantum", *said)
                return (Step(label, QUANTUM, words, outputs=tuple(map(self.text, phase.outputs))),)

    def until(self, until: Condition) -> StopCondition:
        """The loop's condition."""
        limit = next(limit for limit in LIMITS if limit in until.model_fields_set)
        return StopCondition(self.text(until.file), until.key, limit, getattr(until, limit))

    def _words(self, words: list[str], label: str, outputs: list[str], *options: str) -> tuple[str, ...]:
        """The command, which is handed to `qloom step command` if somebody asks what it made."""
        own = tuple(map(self.text, words))
        if self._captured is None:
            return own
        made = [word for output in outputs for word in ("--output", self.text(output))]
        made += [word for name in outputs if name in self._captured for word in ("--capture", self.text(name))]
        return ("qloom", "step", "command", "--name", label, *made, *options, "--", *own)

    def _step(self, table: TaskTable, label: str, several: bool) -> Step:
        name = table.name or label
        if table.ranks:
            raise InputError(
                f"{self._path}: task {name} has ranks, and who starts them is the engine's affair",
                hint="leave out ranks and begin its command with srun or mpirun",
            )
        return Step(
            name,
            COMPUTE if several or table.nodes > 1 else ONE_NODE,
            self._words(table.command, name, table.outputs),
            outputs=tuple(map(self.text, table.outputs)),
            nodes=table.nodes,
            cpus=table.cpus,
            memory_mb=table.memory_mb,
        )

    def _payload(self, phase: PayloadPhase, label: str) -> Step:
        instead = phase.or_classical
        payload = QuantumPart(
            self.text(phase.payload),
            self.text(phase.result),
            phase.shots,
            phase.expected_s,
            phase.device,
            instead is not None,
            tuple(map(self.text, instead.command)) if instead is not None else (),
            instead.expected_s if instead is not None else None,
            self._seed,
            self._asked,
        )
        return Step(label, QUANTUM, payload=payload, outputs=payload.outputs())
