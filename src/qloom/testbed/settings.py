"""What a testbed is like: its nodes, vQPUs and accounting, whose policies it has, and which Slurm it runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from qloom.errors import InputError
from qloom.testbed.installation import PREFIX_VARIABLE, SlurmInstallation

SITES = ("open", "strict")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")


@dataclass(frozen=True)
class TestbedSettings:
    """A small Slurm site on one machine."""

    nodes: int = 3
    vqpus: int = 8  # shares of the QPU: `gres/qpu` of node q1
    cpus: int = 4  # of a compute node; more than this machine has is fine
    accounting: bool = True
    broker: bool = True
    site: str = "open"
    bf_interval_s: int = 0  # seconds between backfill cycles; 0: the default of the site
    slurm_prefix: str = field(default_factory=lambda: os.environ.get(PREFIX_VARIABLE, ""))  # "": the machine's Slurm

    __test__ = False  # for pytest, which takes it for a test

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 64:
            raise InputError(f"a testbed has 1 to 64 nodes, not {self.nodes}")
        if not 1 <= self.vqpus <= 256:
            raise InputError(f"a testbed has 1 to 256 vQPUs, not {self.vqpus}")
        if not 1 <= self.cpus <= 256:
            raise InputError(f"a node has 1 to 256 CPUs, not {self.cpus}")
        if self.site not in SITES:
            raise InputError(f"unknown site {self.site!r}", hint=f"choose one of {', '.join(SITES)}")
        if self.bf_interval_s < 0:
            raise InputError("--bf-interval is in seconds, at least 1")
        if self.strict and not self.accounting:
            raise InputError("a strict site needs accounting: its limits are kept there", hint="no --no-accounting")
        if self.slurm_prefix:
            object.__setattr__(self, "slurm_prefix", os.path.abspath(self.slurm_prefix))

    @property
    def strict(self) -> bool:
        """Whether a centre's policies are enforced."""
        return self.site == "strict"

    @property
    def installation(self) -> SlurmInstallation:
        """The programs that it runs."""
        return SlurmInstallation(Path(self.slurm_prefix) if self.slurm_prefix else None)

    @property
    def node_names(self) -> list[str]:
        """c1, c2, ... and the node of the QPU."""
        return [f"c{number}" for number in range(1, self.nodes + 1)] + ["q1"]

    @property
    def backfill_s(self) -> int:
        """Seconds between two cycles of the backfill scheduler."""
        return self.bf_interval_s or (30 if self.strict else 1)


def check_name(name: str) -> str:
    """A name that can be part of a path."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name for a testbed", hint="small letters, digits and -, at most 24")
    return name
