"""What a testbed is like: its nodes, vQPUs and accounting, whose policies it has, and which Slurm it runs.

That Slurm is the installed one, or one that is unpacked in a directory, its prefix, which has `bin`, `sbin` and `lib`
as `./configure --prefix` makes them. All of Slurm then comes from there, since versions do not mix; munged and
MariaDB are always the installed ones.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from qloom.devices.solvers import require
from qloom.errors import InputError, closest

SITES = ("open", "strict")
DEVICES = ("annealing", "qaoa", "pulser")  # of its broker: an annealer, a gate machine, neutral atoms
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
MUNGE = ("munged",)
SLURM = ("slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "salloc", "srun", "scancel")
SLURM_ACCOUNTING = ("slurmdbd", "sacct", "sacctmgr")
DATABASE = ("mariadbd", "mariadb-install-db")
PACKAGES = (
    "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin mariadb-server"
)
APT = f"apt-get install -y --no-install-recommends {PACKAGES}"
PREFIX_VARIABLE = "QLOOM_SLURM_PREFIX"
PREFIX_HINT = "--slurm-prefix takes a directory with bin, sbin and lib of a Slurm that was built for it"
PLUGIN = "auth_munge.so"  # every testbed needs this one
PLUGIN_PLACES = ("lib*/slurm*", "lib*/*/slurm*")
VERSION_S = 10.0


@dataclass(frozen=True)
class SlurmInstallation:
    """Where the programs of a testbed are found."""

    prefix: Path | None = None

    @property
    def search_path(self) -> str:
        """$PATH with the sbin beside each bin, where daemons lie; the prefix goes first."""
        places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if place]
        beside = [str(Path(place).with_name("sbin")) for place in places if Path(place).name == "bin"]
        return os.pathsep.join(dict.fromkeys([*self._bins, *places, *beside]))

    @property
    def _bins(self) -> list[str]:
        return [] if self.prefix is None else [str(self.prefix / "bin"), str(self.prefix / "sbin")]

    @property
    def client_path(self) -> str:
        """$PATH for those who use the testbed: the same for Slurm's programs."""
        return os.pathsep.join(dict.fromkeys([*self._bins, *os.environ.get("PATH", "").split(os.pathsep)]))

    @property
    def slurmstepd(self) -> Path | None:
        """The program that runs job steps, which slurmd looks for where it was built to be; None if it finds it."""
        return None if self.prefix is None else self.prefix / "sbin" / "slurmstepd"

    @property
    def plugins(self) -> Path | None:
        """Slurm's plug-ins, which it looks for where it was built to be; None if it finds them."""
        if self.prefix is None:
            return None
        found = (file.parent for place in PLUGIN_PLACES for file in sorted(self.prefix.glob(f"{place}/{PLUGIN}")))
        return next(found, None)

    def missing(self, *, accounting: bool = True) -> list[str]:
        """Programs that a testbed needs and this machine does not have."""
        wanted = (*MUNGE, *SLURM, *((*SLURM_ACCOUNTING, *DATABASE) if accounting else ()))
        return [name for name in wanted if self._find(name) is None]

    def require(self, *, accounting: bool) -> None:
        """Raise if a testbed cannot run with it, with the one command that installs what is missing."""
        absent = self.missing(accounting=accounting)
        if self.prefix is not None:
            of_slurm = [name for name in absent if name in SLURM + SLURM_ACCOUNTING]
            if of_slurm:
                raise InputError(f"no Slurm in {self.prefix}: {', '.join(of_slurm)} not found", hint=PREFIX_HINT)
            if self.slurmstepd is None or not self.slurmstepd.exists() or self.plugins is None:
                raise InputError(f"no Slurm in {self.prefix}: slurmstepd or {PLUGIN} not found", hint=PREFIX_HINT)
        if absent:
            raise InputError(f"a testbed needs programs that are not here: {', '.join(absent)}", hint=APT)
        if self.prefix is not None:
            self._require_runnable()

    def _require_runnable(self) -> None:
        """Raise if the programs cannot be executed: built for another machine, or moved since."""
        command = [self.program("slurmctld"), "-V"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_S, check=False)
            complaint = "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or "it fails"
        except (OSError, subprocess.TimeoutExpired) as error:
            complaint = str(error)
        if complaint:
            raise InputError(f"{command[0]} does not run: {complaint.splitlines()[-1]}", hint=PREFIX_HINT)

    def program(self, name: str) -> str:
        """The path of a program."""
        found = self._find(name)
        if found is None:
            raise InputError(f"{name} is not installed here", hint=APT if self.prefix is None else PREFIX_HINT)
        return found

    def _find(self, name: str) -> str | None:
        ours = self.prefix is not None and name in SLURM + SLURM_ACCOUNTING
        return shutil.which(name, path=os.pathsep.join(self._bins) if ours else self.search_path)


@dataclass(frozen=True)
class TestbedSettings:
    """A small Slurm site on one machine."""

    nodes: int = 3
    vqpus: int = 8  # shares of the QPU: `gres/qpu` of node q1
    cpus: int = 4  # of a compute node; more than this machine has is fine
    accounting: bool = True
    broker: bool = True
    site: str = "open"
    device: str = "annealing"  # the kind of the broker's device
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
        if self.device not in DEVICES:
            meant = closest(self.device, DEVICES) or f"choose one of {', '.join(DEVICES)}"
            raise InputError(f"unknown device {self.device!r}", hint=meant)
        if self.broker:
            require(self.device)
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
