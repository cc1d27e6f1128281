"""The environment of Slurm's programs and of launchers: nothing of an outer job, and the Slurm in PATH first.

It knows names of variables alone: not what is started, and not by whom.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Variables by which a launcher finds out where it is; stale ones send a new step to the wrong nodes.
LAUNCHER_PREFIXES = (
    *("SLURM_", "PMI", "PMIX_", "HYDRA_", "MPIEXEC_", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    "QLOOM_SUPERVISED",  # `qloom.mpi.supervisor` sets it for the ranks below it
)
KEPT = ("SLURM_CONF",)


def clean_environment() -> dict[str, str]:
    """The variables of this process without those by which a launcher finds out where it is.

    The directory of our Python is the last in PATH: tasks find programs that were installed beside it, and a Slurm
    that comes earlier in PATH than /usr/bin is the one that is called, also under /usr/bin/python3.
    """
    inherited = {
        name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(LAUNCHER_PREFIXES)
    }
    path = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    return {**inherited, "PATH": os.pathsep.join(path)}


def client_environment() -> dict[str, str]:
    """The same for a client of Slurm, which prints times as seconds of the epoch."""
    return {**clean_environment(), "SLURM_TIME_FORMAT": "%s"}
