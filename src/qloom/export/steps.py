"""The steps of the clustering program, for engines that run commands with files between them.

Each step runs the program's own tasks in the current folder, and all of them together leave the program's own result:

    settings.json points.npy [truth.npy]  ->  prepare  ->  common.npz
    per iteration and method              ->  cluster  ->  METHOD.npy
    their labels                          ->  qubo     ->  qubo.json, graph.json, cells.npy
    qubo.json, on a QPU                   ->  quantum  ->  answer.json
    all of these, and state.json          ->  score    ->  state.json, best.npy, labels.csv, summary.json, status.json
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qloom.clustering import tasks
from qloom.clustering.answer import gap as gap_to
from qloom.clustering.answer import optimum, repair
from qloom.clustering.data import Data
from qloom.clustering.files import read_graph, to_json, write_json, write_labels
from qloom.clustering.overlap import cells_of
from qloom.clustering.parameters import Ranges
from qloom.clustering.program import GAP_LIMIT
from qloom.clustering.qubo import Graph, graph, model, partial_labels
from qloom.clustering.report import Partition, chosen_clusters, repair_report, result_of
from qloom.clustering.tasks import LINKAGES, Clusterings, Scoring
from qloom.errors import InputError
from qloom.export.records import perform
from qloom.journal.content import digest, payload_key
from qloom.model import Payload, Sample, call
from qloom.payloads.adapt import qubo as as_payload
from qloom.shared import Shared, share


@dataclass(frozen=True)
class Settings:
    """The program's parameters, and what follows from them and the data."""

    data: Data
    given: dict[str, Any]
    seed: int

    @property
    def points(self) -> Shared:
        """The points as the program's tasks are given them."""
        return share(self.data.points, None)

    @property
    def methods(self) -> list[str]:
        """The clustering methods, in their order."""
        listed = self.given["methods"]
        listed = listed if isinstance(listed, list) else str(listed).split(",")
        return [str(name).strip() for name in listed if str(name).strip()]

    @property
    def ranges(self) -> Ranges:
        """What parameters are drawn from."""
        given = self.given
        eps = None if given["eps_min"] is None else (float(given["eps_min"]), float(given["eps_max"]))
        ranges = Ranges(
            tuple(self.methods), (given["k_min"], given["k_max"]), given["linkage_k"], given["min_pts"], eps
        )
        return ranges.check(len(self.data.points))

    @property
    def scoring(self) -> Scoring:
        """How silhouettes are computed."""
        count, dimensions = self.data.points.shape
        given = self.given
        options = (given["exact_limit"], given["sample"], given["precision"], given["threads"])
        return Scoring(count, dimensions, *options, self.seed)


def read_settings(folder: Path) -> Settings:
    """From the files that every step is given."""
    content = _read_json(folder / "settings.json")
    truth = folder / "truth.npy"
    known = np.load(truth) if truth.exists() else None
    points = np.load(_there(folder / "points.npy"), allow_pickle=False)
    return Settings(Data(points, content["name"], known), content["parameters"], content["seed"])


def prepare(folder: Path) -> None:
    """What all iterations share: the trees of hierarchical clusterings, and the range of eps."""
    settings = read_settings(folder)
    ranges, points = settings.ranges, settings.points
    kept: dict[str, Any] = {}
    for linkage in [method for method in ranges.methods if method in LINKAGES]:
        kept[linkage] = perform(call(tasks.hierarchy, points, linkage))
    eps = ranges.eps or (1.0, 1.0)
    if ranges.eps is None and "dbscan" in ranges.methods:
        eps = perform(call(tasks.find_eps_range, points, ranges.min_pts))
    with (folder / "common.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, eps=np.asarray(eps, np.float64), **kept)


def cluster(folder: Path, method: str, iteration: int) -> None:
    """One clustering of an iteration (from 1)."""
    settings = read_settings(folder)
    if method not in settings.methods:
        raise InputError(f"settings.json has no method {method!r}", hint=", ".join(settings.methods))
    clusterings = _clusterings(folder, settings)
    drawn = {given["method"]: given for given in clusterings.draw(iteration - 1).values()}
    _save(folder / f"{method}.npy", perform(clusterings.task(drawn[method])))


def qubo(folder: Path, iteration: int) -> None:
    """The QUBO that chooses clusters without overlaps, ready to be sent, with the seed that the program would use."""
    settings = read_settings(folder)
    given, scoring = settings.given, settings.scoring
    labelings = [np.load(_there(folder / f"{method}.npy"), allow_pickle=False) for method in settings.methods]
    sums = None
    if given["weights"] == "silhouette":
        shared = [share(labels, None) for labels in labelings]
        sums = perform(call(tasks.cluster_silhouettes, settings.points, _rows(scoring), *_how(given), *shared))
    cells = cells_of(labelings)
    overlaps = graph(cells, settings.methods, sums, given["penalty"])
    write_json(folder / "graph.json", to_json(overlaps))
    _save(folder / "cells.npy", cells.of_point)
    if not overlaps.clusters:  # nothing to ask
        write_json(folder / "qubo.json", {"kind": "qubo", "body": {"linear": [], "quadratic": [], "offset": 0.0}})
        return
    payload, key = _asked(overlaps, given)
    seed = int(digest("seed", settings.seed, key, _state(folder)["asked"].count(key))[:7], 16)
    body = {"kind": payload.kind, "body": payload.body, "shots": payload.shots, "options": {"seed": seed}}
    write_json(folder / "qubo.json", body | ({} if payload.seconds is None else {"seconds": payload.seconds}))


def score(folder: Path, iteration: int) -> None:
    """The partition that follows from an answer, and whether it is the best so far."""
    settings = read_settings(folder)
    given, scoring = settings.given, settings.scoring
    state = _state(folder)
    overlaps = read_graph(folder / "graph.json")
    drawn = list(_clusterings(folder, settings).draw(iteration - 1).values())
    tried: dict[str, Any] = {
        "iteration": iteration - 1,
        "clusterings": drawn,
        "variables": len(overlaps.clusters),
        "score": None,
    }
    state["tried"].append(tried)
    rank = None
    if overlaps.clusters:
        answer = _read_json(folder / "answer.json")
        payload, key = _asked(overlaps, given)
        state["asked"].append(key)
        sample = Sample({name: int(answer["sample"][name]) for name, _ in payload.body["linear"]}, answer["energy"])
        rank = _partition(folder, settings, scoring, overlaps, sample, tried, state)
    reached = given["score"] and rank is not None and rank > given["threshold"]
    write_json(folder / "state.json", state)
    write_json(folder / "status.json", {"proceed": not reached, "iteration": iteration, "score": tried["score"]})
    _write_result(folder, settings, scoring, state)


def _partition(
    folder: Path,
    settings: Settings,
    scoring: Scoring,
    overlaps: Graph,
    sample: Sample,
    tried: dict[str, Any],
    state: dict[str, Any],
) -> float | None:
    """Repair the answer, label every point, and keep the labels if no earlier ones are better."""
    given = settings.given
    choice = repair(overlaps, sample.values)
    tried["repair"] = repair_report(overlaps, choice)
    if given["gap"] and len(overlaps.clusters) <= GAP_LIMIT:
        tried["gap"] = gap_to(overlaps, list(choice.chosen), optimum(overlaps))
    chosen = [overlaps.clusters[i] for i in choice.chosen]
    tried["uncovered"] = scoring.points - sum(cluster.size for cluster in chosen)
    of_point = np.load(_there(folder / "cells.npy"), allow_pickle=False)
    partial = share(partial_labels(of_point, chosen), None)
    labels, tried["score"] = perform(
        call(tasks.partition, settings.points, partial, _rows(scoring), *_how(given), given["score"])
    )
    rank: float | None = tried["score"] if given["score"] else -overlaps.energy(list(choice.chosen))
    if rank is not None and (state["best"] is None or rank > state["best"]["rank"]):
        clusters = chosen_clusters(overlaps, choice, tried["clusterings"])
        state["best"] = {"rank": rank, "iteration": tried["iteration"], "clusters": clusters}
        _save(folder / "best.npy", labels)
    return rank


def _write_result(folder: Path, settings: Settings, scoring: Scoring, state: dict[str, Any]) -> None:
    """The best result so far: whichever iteration is the last, this is what the loop leaves."""
    if state["best"] is None:
        if len(state["tried"]) >= settings.given["iterations"]:
            raise InputError("no iteration found two clusters or more", hint="widen the ranges of k and eps")
        _save(folder / "best.npy", np.zeros(0, np.int8))
        (folder / "labels.csv").write_text("cluster\n")
        write_json(folder / "summary.json", {"iterations": state["tried"]})
        return
    best = Partition(labels=np.load(folder / "best.npy", allow_pickle=False), **state["best"])
    how = scoring.report() if settings.given["score"] else None
    write_labels(folder / "labels.csv", best.labels)
    write_json(
        folder / "summary.json", result_of(settings.data, best, state["tried"], how, settings.given["threshold"])
    )


def _clusterings(folder: Path, settings: Settings) -> Clusterings:
    with np.load(_there(folder / "common.npz"), allow_pickle=False) as common:
        low, high = (float(value) for value in common["eps"])
        trees = {name: share(common[name], None) for name in common.files if name != "eps"}
    count = len(settings.data.points)
    return Clusterings(settings.points, count, settings.ranges, (low, high), trees, settings.seed)


def _asked(overlaps: Graph, given: dict[str, Any]) -> tuple[Payload, str]:
    """The payload that the program would send, and the name of its content."""
    payload = as_payload(model(overlaps), shots=given["shots"], seconds=given["quantum_s"])
    return payload, payload_key(payload)


def _rows(scoring: Scoring) -> Shared | None:
    rows = scoring.rows()
    return None if rows is None else share(rows, None)


def _how(given: dict[str, Any]) -> tuple[str, int]:
    return given["precision"], given["threads"]


def _state(folder: Path) -> dict[str, Any]:
    path = folder / "state.json"
    return _read_json(path) if path.exists() else {"tried": [], "asked": [], "best": None}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_there(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: a JSON object is needed")
    return content


def _there(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: no such file", hint="run the steps in their order, in one folder")
    return path


def _save(path: Path, array: Any) -> None:
    with path.open("wb") as file:  # an open file, or numpy adds .npy to other names
        np.save(file, array, allow_pickle=False)
