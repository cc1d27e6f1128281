"""The Slurm that a testbed runs: the one that is installed, or one that is unpacked in a directory, its prefix.

A prefix has `bin`, `sbin` and `lib`, as `./configure --prefix` makes them. All of Slurm then comes from there, since
versions do not mix; munged and MariaDB are always the installed ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from qloom.errors import InputError

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
