"""The clustering program as a flow: its steps are `qloom step` commands, its input the points and the settings."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.export.flow import COMPUTE, ONE_NODE, QUANTUM, Flow, QuantumPart, Step, StopCondition

EVERY = ("settings.json", "points.npy", "truth.npy")
LEFT_OUT = ("data", "blobs", "label", "plot", "speculate")  # the points are a file here, and nothing runs early
MADE_BY_SCORE = ("state.json", "best.npy", "labels.csv", "summary.json", "status.json")


def flow_of_clustering(given: dict[str, Any], seed: int, *, or_classical: bool = False) -> Flow:
    """The flow of the clustering program with these parameters."""
    from qloom.clustering.checks import checked_points
    from qloom.clustering.program import program
    from qloom.export.steps import Settings

    try:
        bound = inspect.signature(program).bind(None, **given)
    except TypeError as error:
        raise InputError(f"parameters of clustering: {error}") from None
    bound.apply_defaults()
    values = dict(bound.arguments)
    del values["job"]
    data = checked_points(values)
    parameters = {name: value for name, value in values.items() if name not in LEFT_OUT}
    settings = Settings(data, parameters, seed)
    methods = list(settings.ranges.methods)
    threads = settings.scoring.threads
    kept = {"name": data.name, "seed": seed, "parameters": parameters}
    files: dict[str, Path | bytes] = {
        "settings.json": json.dumps(kept, indent=2).encode() + b"\n",
        "points.npy": _npy(data.points),
    }
    if data.truth is not None:
        files["truth.npy"] = _npy(data.truth)
    labels = tuple(f"{method}.npy" for method in methods)
    numbered = ("--iteration", "{iteration}")
    clusterings = tuple(
        Step(method, COMPUTE, ("qloom", "step", "cluster", method, *numbered), outputs=(f"{method}.npy",),
             reads=(*EVERY, "common.npz"))
        for method in methods
    )  # fmt: skip
    qubo = Step(
        "qubo", ONE_NODE, ("qloom", "step", "qubo", *numbered), outputs=("qubo.json", "graph.json", "cells.npy"),
        reads=(*EVERY, *labels, "state.json"), cpus=threads,
    )  # fmt: skip
    sent = QuantumPart("qubo.json", "answer.json", candidate=or_classical)
    quantum = Step("quantum", QUANTUM, payload=sent, outputs=("answer.json",), reads=("qubo.json",))
    score = Step(
        "score", ONE_NODE, ("qloom", "step", "score", *numbered), outputs=MADE_BY_SCORE, cpus=threads,
        reads=(*EVERY, "common.npz", "graph.json", "cells.npy", "answer.json", "state.json", "best.npy"),
    )  # fmt: skip
    return Flow(
        name="clustering",
        files=files,
        before=((Step("prepare", ONE_NODE, ("qloom", "step", "prepare"), outputs=("common.npz",), reads=EVERY),),),
        body=(clusterings, (qubo,), (quantum,), (score,)),
        max_iterations=values["iterations"],
        until=StopCondition("status.json", "proceed", "equals", False),
        loops=True,
        results=("labels.csv", "summary.json"),
    )


def _npy(array: Any) -> bytes:
    import numpy

    buffer = io.BytesIO()
    numpy.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
