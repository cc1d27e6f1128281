"""A job file as a flow: its phases are commands already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.export.flow import COMPUTE, ONE_NODE, QUANTUM, Flow, Payload, Step, Until, require_distinct
from qloom.jobfile import program_from
from qloom.jobfile.model import LIMITS, ClassicalPhase, PayloadPhase, Phase, QuantumCommandPhase, TaskTable
from qloom.jobfile.model import Until as Condition
from qloom.jobfile.read import read_jobfile
from qloom.jobfile.template import as_text, fill


def flow_of_jobfile(path: Path, given: dict[str, Any]) -> Flow:
    """The flow of a job file, with these parameters."""
    path = path.resolve()
    file = read_jobfile(path)
    for name in given:
        if name not in file.parameters:
            known = ", ".join(file.parameters) or "none"
            raise InputError(f"{path}: there is no parameter {name!r}", hint=f"it takes: {known}")
    program_from(path).check_parameters(given)  # type: ignore[attr-defined]
    values = {name: as_text(given.get(name, default)) for name, default in file.parameters.items()}
    reader = _Reader(path, values)
    phases = {when: tuple(reader.steps(place, phase) for place, phase in file.phases(when)) for when in WHEN}
    loop = file.loop
    flow = Flow(
        name=file.name,
        files={reader.text(name): path.parent / reader.text(name) for name in file.files},
        before=phases["before"],
        body=phases["loop"],
        after=phases["after"],
        max_iterations=loop.max_iterations if loop else 1,
        until=reader.until(loop.until) if loop and loop.until else None,
        loops=loop is not None,
    )
    return require_distinct(flow)


WHEN: tuple[Any, ...] = ("before", "loop", "after")


class _Reader:
    """Phases as steps; parameters are filled in, the number of the iteration is left open."""

    def __init__(self, path: Path, values: dict[str, str]) -> None:
        self._values = {"source": str(path.parent), "iteration": "{iteration}", **values}

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
                words = tuple(map(self.text, phase.command))
                return (Step(label, QUANTUM, words, outputs=tuple(map(self.text, phase.outputs))),)

    def until(self, until: Condition) -> Until:
        """The loop's condition."""
        limit = next(limit for limit in LIMITS if limit in until.model_fields_set)
        return Until(self.text(until.file), until.key, limit, getattr(until, limit))

    def _step(self, table: TaskTable, label: str, several: bool) -> Step:
        return Step(
            table.name or label,
            COMPUTE if several or table.nodes > 1 else ONE_NODE,
            tuple(map(self.text, table.command)),
            outputs=tuple(map(self.text, table.outputs)),
            nodes=table.nodes,
            cpus=table.cpus,
            memory_mb=table.memory_mb,
        )

    def _payload(self, phase: PayloadPhase, label: str) -> Step:
        instead = phase.or_classical
        payload = Payload(
            self.text(phase.payload),
            self.text(phase.result),
            phase.shots,
            phase.expected_s,
            phase.device,
            instead is not None,
            tuple(map(self.text, instead.command)) if instead is not None else (),
            instead.expected_s if instead is not None else None,
        )
        return Step(label, QUANTUM, payload=payload, outputs=(payload.result,))
