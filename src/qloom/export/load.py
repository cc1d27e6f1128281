"""Finding the flow of a program: only job files and the clustering program have a static shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.export.flow import Flow
from qloom.export.jobfiles import flow_of_jobfile


def flow_of(
    program: str, parameters: dict[str, Any], seed: int = 0, *, or_classical: bool = False, recorded: bool = False
) -> Flow:
    """The steps of a program; refuses one whose steps are only known while it runs.

    `recorded`: they are for an engine of qloom's, which wants to know what commands made.
    """
    if program == "clustering":
        from qloom.export.clustering import flow_of_clustering

        return flow_of_clustering(parameters, seed, or_classical=or_classical)
    if Path(program).suffix == ".toml":
        return flow_of_jobfile(Path(program), parameters, seed, recorded=recorded)
    raise InputError(
        f"{program} has no static shape: which steps a Python program runs is only known while it runs",
        hint="describe its phases in a job file, or run it with: qloom run --strategy workflow",
    )
