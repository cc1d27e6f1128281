"""The programs that a testbed is made of, and how to get them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from qloom.errors import InputError
from qloom.testbed.settings import Settings

SLURM = ("munged", "slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "salloc", "srun", "scancel")
ACCOUNTING = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db")
PACKAGES = (
    "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin mariadb-server"
)
APT = f"apt-get install -y --no-install-recommends {PACKAGES}"


def search_path() -> str:
    """$PATH with the sbin beside each bin: daemons lie there, and users rarely have it in their path."""
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    beside = [str(Path(place).with_name("sbin")) for place in places if Path(place).name == "bin"]
    return os.pathsep.join(dict.fromkeys(places + beside))


def missing(settings: Settings | None = None) -> list[str]:
    """Programs that a testbed needs and this machine does not have."""
    wanted = SLURM + (ACCOUNTING if settings is None or settings.accounting else ())
    return [name for name in wanted if shutil.which(name, path=search_path()) is None]


def require(settings: Settings) -> None:
    """Raises if a program is missing, with the one command that brings them all."""
    if absent := missing(settings):
        raise InputError(f"a testbed needs programs that are not here: {', '.join(absent)}", hint=APT)


def program(name: str) -> str:
    """The path of a program."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise InputError(f"{name} is not installed here", hint=APT)
    return found
