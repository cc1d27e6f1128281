"""What a job file may say. The published JSON schema, for editors and other tools, is made from these classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.types import FiniteFloat

LIMITS = ("at_least", "at_most", "above", "below", "equals")

Text = Annotated[str, Field(min_length=1)]
Command = Annotated[
    list[Text], Field(min_length=1, description="The executable and its arguments; {name} stands for a parameter.")
]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
When = Literal["before", "loop", "after"]
WHEN = Field(default=None, description="Before, in or after the loop; in it unless this says otherwise.")
PHASE_NAME = Field(default=None, description="What the phase is called in timelines and messages.")
OUTPUTS: Any = Field(
    default_factory=list, description="Files in the work directory that the command makes and later phases need."
)
PHASE_TAGS = ("classical", "quantum-payload", "quantum-command")
Parameter = bool | int | FiniteFloat | str
SCHEMA_ID = "urn:qloom:schema:jobfile:1"


class JobFileTable(BaseModel):
    """Nothing unknown, and no silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TaskTable(JobFileTable):
    """One command on the nodes of the job."""

    command: Command
    name: Text | None = Field(default=None, description="What the task is called; as its phase unless given.")
    nodes: int = Field(default=1, ge=1, description="Nodes that the task needs at the same time.")
    cpus: int = Field(default=1, ge=1, description="Cores that the task needs on each node.")
    memory_mb: int = Field(default=0, ge=0, description="Memory that the task needs on each node, in MB.")
    ranks: int = Field(default=0, ge=0, description="MPI processes over the nodes of the task; 0: no MPI.")
    expected_s: Seconds | None = Field(default=None, description="How long the task is expected to take, in seconds.")
    outputs: list[Text] = OUTPUTS


class ClassicalPhase(JobFileTable):
    """Commands that are spread over the nodes of the job, longest expected first."""

    kind: Literal["classical"] = Field(description="Commands on nodes.")
    name: Text | None = PHASE_NAME
    when: When | None = WHEN
    task: list[TaskTable] = Field(min_length=1, description="The commands, all of which may run at once.")


class PayloadPhase(JobFileTable):
    """A QUBO, a circuit or a Pulser sequence that is sent to a QPU."""

    kind: Literal["quantum"] = Field(description="Work for a QPU.")
    name: Text | None = PHASE_NAME
    when: When | None = WHEN
    payload: Text = Field(
        description="File with a QUBO (JSON), OpenQASM or a Pulser sequence: a task's output, or an input file."
    )
    result: Text = Field(description="File for the answer: the best sample and its energy, or counts.")
    shots: int | None = Field(
        default=None, ge=1, description="How often the device samples: 100 times, circuits 1024, unless given."
    )
    expected_s: Seconds | None = Field(
        default=None, description="How long an emulated device takes; its technology decides unless given."
    )
    device: Text | None = Field(default=None, description="The QPU to use; the least busy one unless given.")
    or_classical: TaskTable | None = Field(
        default=None, description="A command that may stand in for the device and then writes the result file itself."
    )

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, given: Any) -> Any:
        if isinstance(given, dict) and "payload" in given and "command" in given:
            raise ValueError("payload and command are two ways to use a QPU: give one of them")
        return given


class QuantumCommandPhase(JobFileTable):
    """A command that talks to the QPU itself, run while the job has the device."""

    kind: Literal["quantum"] = Field(description="Work for a QPU.")
    name: Text | None = PHASE_NAME
    when: When | None = WHEN
    command: Command
    expected_s: Seconds | None = Field(
        default=None, description="How long the command is expected to use the device."
    )
    device: Text | None = Field(default=None, description="The QPU to use; the least busy one unless given.")
    outputs: list[Text] = OUTPUTS


class Until(JobFileTable):
    """Ends the loop when a value in a JSON file is far enough. Exactly one limit is given."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [limit]} for limit in LIMITS]})

    file: Text = Field(description="JSON file that a phase of the loop makes.")
    key: Text = Field(description="Where the value is in the file; dots lead into nested tables: scores.best.")
    at_least: FiniteFloat | None = Field(default=None, description="Stop when the value is this or more.")
    at_most: FiniteFloat | None = Field(default=None, description="Stop when the value is this or less.")
    above: FiniteFloat | None = Field(default=None, description="Stop when the value is more than this.")
    below: FiniteFloat | None = Field(default=None, description="Stop when the value is less than this.")
    equals: bool | int | FiniteFloat | str | None = Field(default=None, description="Stop when the value is this.")

    @model_validator(mode="after")
    def _one_limit(self) -> Until:
        if len(given := [limit for limit in LIMITS if limit in self.model_fields_set]) != 1:
            said = f"not {' and '.join(given)}" if given else "and none is given"
            raise ValueError(f"a condition has exactly one of {', '.join(LIMITS)}, {said}")
        return self


class Loop(JobFileTable):
    """Repeats the phases that are not before or after it."""

    max_iterations: int = Field(ge=1, description="The loop ends after this many iterations at the latest.")
    until: Until | None = Field(
        default=None, description="The condition that ends the loop, seen after each iteration."
    )


def _which_phase(given: Any) -> str | None:
    kind = given.get("kind") if isinstance(given, dict) else getattr(given, "kind", None)
    if kind == "quantum":
        uses_command = isinstance(given, QuantumCommandPhase) or (
            isinstance(given, dict) and "command" in given and "payload" not in given
        )
        return "quantum-command" if uses_command else "quantum-payload"
    return "classical" if kind == "classical" else None


Phase = Annotated[
    Annotated[ClassicalPhase, Tag(PHASE_TAGS[0])]
    | Annotated[PayloadPhase, Tag(PHASE_TAGS[1])]
    | Annotated[QuantumCommandPhase, Tag(PHASE_TAGS[2])],
    Discriminator(
        _which_phase, custom_error_type="kind", custom_error_message="kind must be 'classical' or 'quantum'"
    ),
]


class JobFile(JobFileTable):
    """A hybrid program whose phases are commands, with files between them."""

    name: Text = Field(description="What the program is called.")
    parameters: dict[str, Parameter] = Field(
        default_factory=dict, description="Values that --set can change, used as {name} in commands and file names."
    )
    files: list[Text] = Field(
        default_factory=list,
        description="Input files beside the job file, copied into the work directory before the first phase.",
    )
    phase: list[Phase] = Field(min_length=1, description="The phases, in the order in which they run.")
    loop: Loop | None = Field(default=None, description="Repeats phases; without it, each phase runs once.")

    def phases(self, when: When) -> list[tuple[int, Phase]]:
        """The phases of one part of the file, with their place in it (from 1). Without a loop, all are in it once."""
        return [(place, phase) for place, phase in enumerate(self.phase, 1) if (phase.when or "loop") == when]


def jobfile_schema() -> dict[str, Any]:
    """What a job file may hold, as JSON schema (draft 2020-12). Checks across tables are made on loading only."""
    schema = _plain(JobFile.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return {**head, **schema, "title": "qloom job file"}


def _plain(schema: Any) -> Any:
    """Without null, which TOML has not, and the same whatever pydantic says beside a constant."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _plain(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if "const" in kept:
        kept = {key: value for key, value in kept.items() if key not in ("type", "enum")}
    if len(kept.get("anyOf", ())) == 1:
        (only,) = kept.pop("anyOf")
        kept = {**only, **kept}
    return kept
