"""Finding StreamFlow: it pins its dependencies exactly, so it has an environment and a process of its own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from qloom.errors import InputError

VARIABLE = "QLOOM_STREAMFLOW"
FOLDER = ".venv-streamflow"
HINT = "scripts/streamflow-environment makes it, or name the executable in $QLOOM_STREAMFLOW"


def find_streamflow() -> Path:
    """The executable: $QLOOM_STREAMFLOW, the one of this checkout, or the one on the PATH."""
    if named := os.environ.get(VARIABLE):
        if not os.access(named, os.X_OK):
            raise InputError(f"${VARIABLE} names {named}, which is no program", hint=HINT)
        return Path(named)
    own = Path(__file__).parents[3] / FOLDER / "bin" / "streamflow"
    found = str(own) if own.exists() else shutil.which("streamflow")
    if found is None:
        raise InputError("StreamFlow is not installed", hint=HINT)
    return Path(found)


def step_environment(**more: str) -> dict[str, str]:
    """What StreamFlow and the steps are given: this qloom is the one that they call."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}", **more}
