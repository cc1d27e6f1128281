"""What a campaign file may say. A value `"$name"` stands for the calibrated value of that name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.types import FiniteFloat

from qloom.devices.technologies import technology
from qloom.strategies import parse_strategy

Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
Label = str | int | FiniteFloat
USUAL_STRATEGY = "offload"
JOB_FIGURES = (
    "wall_s",
    "node_s",
    "node_s_busy",
    "qpu_s_held",
    "qpu_s_busy",
    "vqpu_s_held",
    "node_wait_s",
    "qpu_wait_s",
    "spare_node_s",
    "node_use",
    "qpu_use",
    "cost_node_s",
    "task_wait_mean_s",
    "task_wait_max_s",
)
LOAD_FIGURES = (  # of cells that have a workload
    "hybrid_turnaround_s",
    "hybrid_wait_s",
    "hybrid_slowdown",
    "rigid_wait_s",
    "rigid_slowdown",
    "harm_s",
    "node_use",
    "qpu_use",
)
FIGURES = tuple(dict.fromkeys((*JOB_FIGURES, *LOAD_FIGURES)))
Figure = Literal[FIGURES]  # type: ignore[valid-type]  # the names above
QUIRKS = {  # ways of counting of a paper, and what they mean
    "baseline-double-is-a-sum": "two jobs under offload count as the sum of their own wall times",
    "workflow-bills-used-nodes": "a step of a workflow is billed for the nodes that ran a task, not for all it held",
}
QUIRK_NAMES = tuple(QUIRKS)
Quirk = Literal[QUIRK_NAMES]  # type: ignore[valid-type]


class CampaignTable(BaseModel):
    """Nothing unknown in a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PoissonArrivals(CampaignTable):
    """Jobs that come by chance, decided by the seed of the repeat."""

    mean_s: Seconds = Field(description="Mean time between two jobs.")


class Setting(CampaignTable):
    """What a cell runs; a value of an axis changes some of it."""

    program: Text | None = Field(default=None, description="A program; `phases` unless given.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="Of the program.")
    strategy: Text | None = Field(default=None, description="As on the command line: malleable, malleable+share.")
    engine: Text | None = Field(default=None, description="Who runs the steps of workflow: streamflow, or qloom.")
    options: dict[str, dict[str, FiniteFloat]] = Field(
        default_factory=dict, description="Options of strategies, by name: workflow, or workflow+share alone."
    )
    world: Text | None = Field(default=None, description="Where it runs; virtual unless given.")
    jobs: int | None = Field(default=None, ge=1, description="Jobs at once.")
    arrivals: list[Seconds] | PoissonArrivals | None = Field(
        default=None, description="When the jobs come: seconds for each, or { mean_s = 60 }; together unless given."
    )
    nodes: int | None = Field(default=None, ge=1, description="Nodes of the cluster; 3 unless given.")
    job_nodes: int | None = Field(default=None, ge=1, description="The most nodes that one job may hold.")
    technology: Text | None = Field(default=None, description="Of the QPU; annealer unless given.")
    shots: int | None = Field(
        default=None, ge=1, description="Sets quantum_s to what the technology takes for this many shots."
    )
    shares: int | None = Field(default=None, ge=1, description="vQPUs that the QPU is divided into.")
    lanes: int | None = Field(default=None, ge=1, description="Tasks that the QPU runs at once.")
    workload: dict[str, Any] = Field(
        default_factory=dict,
        description="A loaded cluster, as `qloom load run` has it; virtual.",
    )
    qpus: list[dict[str, Any]] | None = Field(default=None, description="Several QPUs, as in a site file.")
    overheads: dict[str, FiniteFloat] = Field(default_factory=dict, description="Of the engine, in virtual time.")

    @field_validator("technology")
    @classmethod
    def _known_technology(cls, name: str | None) -> str | None:
        if name is not None:
            technology(name)
        return name

    @field_validator("strategy")
    @classmethod
    def _known_strategy(cls, name: str | None) -> str | None:
        for part in (name or USUAL_STRATEGY).split(","):
            parse_strategy(part)
        return name

    @property
    def strategies(self) -> str:
        """The strategy of its jobs, or those that they take in turn."""
        return self.strategy or USUAL_STRATEGY

    def options_of(self, strategy: str) -> dict[str, float]:
        """Those given for a strategy however it holds the QPU (`workflow`), then those for this spelling alone."""
        return {**self.options.get(strategy.partition("+")[0], {}), **self.options.get(strategy, {})}

    def changed_by(self, other: Setting) -> Setting:
        """This setting with what the other one says on top; tables are merged."""
        merged: dict[str, Any] = {}
        for name in type(self).model_fields:
            own, others = getattr(self, name), getattr(other, name)
            if isinstance(own, dict):
                merged[name] = {**own, **others}
            else:
                merged[name] = own if others is None else others
        return type(self).model_construct(**merged)


class Calibrated(CampaignTable):
    """A number that was not published but found: by a fit, or in another source."""

    value: FiniteFloat
    origin: Text = Field(description="How it was obtained.")
    prior: FiniteFloat | None = Field(default=None, description="Where a fit starts; a value without one is fixed.")
    spread: FiniteFloat = Field(default=1.0, gt=0, description="How far from the prior a fit goes easily.")


class Published(CampaignTable):
    """A table from a paper: axes and figures by column; a column NAME_sd is the deviation of NAME."""

    source: Text
    columns: list[Text] = Field(min_length=2)
    rows: list[list[Label]] = Field(min_length=1)

    @model_validator(mode="after")
    def _even(self) -> Published:
        for place, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {place + 1} has {len(row)} values and there are {len(self.columns)} columns")
        return self


class Claim(CampaignTable):
    """One percentage of a paper: `figure` of one cell compared with that of another."""

    claim: Text
    percent: FiniteFloat
    figure: Figure
    of: dict[str, Label]
    than: dict[str, Label]
    relative_to: Literal["of", "than"] = Field(default="than", description="Whose figure is 100 %.")

    def definition(self) -> str:
        """How the percentage is computed."""
        one, other = (" ".join(str(value) for value in cell.values()) for cell in (self.of, self.than))
        whole = other if self.relative_to == "than" else one
        return f"({other} - {one}) / {whole}"


class Campaign(CampaignTable):
    """A matrix of runs, and what they are compared with."""

    title: Text
    source: Text | None = Field(default=None, description="Where the experiment comes from.")
    notes: Text | None = Field(default=None, description="What a reader of the report has to know.")
    base: Setting = Field(default_factory=Setting, description="What all cells have in common.")
    matrix: dict[str, list[Label] | dict[str, Setting]] = Field(
        default_factory=dict,
        description="Axes: values of a key of [base] or of one of its parameters, or named settings.",
    )
    include: list[Text] = Field(
        default_factory=list, description="Other campaigns whose cells are cells of this one too."
    )
    repeats: int = Field(default=1, ge=1)
    seed: int = Field(default=1, ge=0, description="Of the first repeat; the others follow at a distance of 1000.")
    figures: list[Figure] = Field(
        default=["wall_s", "node_s"],
        min_length=1,
        description="Columns of the report; of workloads unless given: hybrid_turnaround_s, rigid_wait_s.",
    )
    baseline: Text | None = Field(default=None, description="The strategy that others are compared with.")
    quirks: list[Quirk] = Field(
        default_factory=list,
        description="How the paper counts, if not honestly; such figures are shown beside the honest ones.",
    )
    calibrated: dict[str, Calibrated] = Field(default_factory=dict)
    calibrate: dict[str, dict[str, Label]] = Field(
        default_factory=dict, description="Parts of the published table that a fit can be limited to, by name."
    )
    published: Published | None = None
    claims: list[Claim] = Field(default_factory=list)
    map: tuple[Text, Text] | None = Field(default=None, description="Two axes; the winner is drawn over them.")

    @property
    def is_under_load(self) -> bool:
        """Whether every cell has a workload."""
        named = [values.values() for values in self.matrix.values() if isinstance(values, dict)]
        return bool(self.base.workload) or any(all(setting.workload for setting in values) for values in named)
