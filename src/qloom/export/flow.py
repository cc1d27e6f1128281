"""A program of static shape: steps that are commands, with files between them, and perhaps one loop.

Job files and the clustering program have such a shape, and every way to write one down (CWL, shell scripts) is made
from it. Texts may hold `{iteration}` (from 1; 0 before the loop).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qloom.errors import InputError

COMPUTE, ONE_NODE, QUANTUM = "compute", "one-node", "quantum"  # where steps go, in the words of the QCE25 paper


@dataclass(frozen=True)
class QuantumPart:
    """What a quantum step sends to a device, and what may stand in for it."""

    file: str
    result: str
    shots: int | None = None
    seconds: float | None = None
    device: str | None = None
    candidate: bool = False  # a classical location will do while the device is away
    or_classical: tuple[str, ...] = ()  # what runs there; a solver of qloom's own if nothing is named
    classical_s: float | None = None  # how long that takes
    seed: int = 0  # of an emulated device
    asked: str | None = None  # a file that counts payloads: an emulated device answers the same one anew each time

    def outputs(self) -> tuple[str, ...]:
        """The files that the step leaves."""
        return (self.result, self.asked) if self.asked else (self.result,)


@dataclass(frozen=True)
class Step:
    """One command, or one payload."""

    name: str
    location: str
    command: tuple[str, ...] = ()
    payload: QuantumPart | None = None
    outputs: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None  # None: it may read any file that is there
    nodes: int = 1
    cpus: int = 1
    memory_mb: int = 0

    def words(self) -> tuple[str, ...]:
        """The command line; a payload's is read as such by a QPU, and solved or stood in for on a node."""
        if self.payload is None:
            return self.command
        sent = self.payload
        words = ["qloom", "step", "quantum", sent.file, sent.result]
        for option, value in (("--shots", sent.shots), ("--seconds", sent.seconds), ("--device", sent.device)):
            words += [option, str(value)] if value is not None else []
        words += ["--seed", str(sent.seed)] if sent.seed else []
        words += ["--asked", sent.asked] if sent.asked else []
        return (*words, *(("--", *sent.or_classical) if sent.candidate and sent.or_classical else ()))


@dataclass(frozen=True)
class StopCondition:
    """Ends the loop when a value in a JSON file is far enough."""

    file: str
    key: str
    limit: str  # at_least, at_most, above, below, equals
    value: bool | int | float | str

    def words(self) -> tuple[str, ...]:
        """As options of `qloom step judge`."""
        value = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        return ("--file", self.file, "--key", self.key, f"--{self.limit.replace('_', '-')}", value)


@dataclass(frozen=True)
class Flow:
    """All steps of a program; the steps of one phase may run at once, phases run in their order."""

    name: str
    files: dict[str, Path | bytes]  # the name that steps see -> the file, or its content
    before: tuple[tuple[Step, ...], ...] = ()
    body: tuple[tuple[Step, ...], ...] = ()
    after: tuple[tuple[Step, ...], ...] = ()
    max_iterations: int = 1
    until: StopCondition | None = None
    loops: bool = False
    results: tuple[str, ...] = ()  # the files that a user wants; all that are made, if none is named

    def steps(self) -> Iterator[Step]:
        """All steps, in their order."""
        for phase in (*self.before, *self.body, *self.after):
            yield from phase

    def judge_words(self, iteration: str) -> tuple[str, ...]:
        """The command that decides whether there is another iteration."""
        limit = ("--iteration", iteration, "--max", str(self.max_iterations))
        return ("qloom", "step", "judge", *limit, *(self.until.words() if self.until else ()))


def made_by(phases: Sequence[Sequence[Step]]) -> list[str]:
    """The files that these phases make, each once, in their order."""
    return list(dict.fromkeys(name for phase in phases for step in phase for name in step.outputs))


def identifier(name: str) -> str:
    """A name that any language takes."""
    text = re.sub(r"\W+", "_", name).strip("_")
    return f"_{text}" if not text or text[0].isdigit() else text


def require_distinct(flow: Flow) -> Flow:
    """Refuse names that would become the same one elsewhere."""
    for kind, names in (
        ("steps", [step.name for step in flow.steps()]),
        ("files", [*flow.files, *made_by((*flow.before, *flow.body, *flow.after))]),
    ):
        seen: dict[str, str] = {}
        for name in names if kind == "steps" else dict.fromkeys(names):
            other = seen.setdefault(identifier(name), name)
            if other != name or (kind == "steps" and names.count(name) > 1):
                raise InputError(f"{flow.name}: the {kind} {other!r} and {name!r} have the same name in a workflow")
    return flow
