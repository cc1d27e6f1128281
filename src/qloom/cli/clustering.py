"""`qloom clustering`: the steps of the clustering program as commands, with files in between.

Any workflow engine can run the loop with them:

    qloom clustering cluster points.csv --method kmeans --iteration 0 --out kmeans.npy
    qloom clustering qubo points.csv kmeans.npy dbscan.npy single.npy --out qubo.json --cells cells.npy
    qloom clustering solve qubo.json --out answer.json
    qloom clustering score points.csv qubo.json answer.json --cells cells.npy --out labels.csv
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from qloom.errors import InputError

app = typer.Typer(help="The steps of the clustering program, with files in between.", no_args_is_help=True)

DataFile = Annotated[Path, typer.Argument(help="Points: CSV (header optional) or npy of shape (points, dimensions).")]
Label = Annotated[str | None, typer.Option(help="A column of known labels, by name or number, kept out of the data.")]
Threads = Annotated[int, typer.Option(help="Threads for silhouettes.")]
Precision = Annotated[str, typer.Option(help="single or double, for silhouettes.")]


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.add_typer(app, name="clustering")


@app.command()
def cluster(
    data: DataFile,
    out: Annotated[Path, typer.Option(help="Labels go here: npy of integers, -1 is noise.")],
    method: Annotated[str, typer.Option(help="kmeans, dbscan, single, ward or hdbscan.")] = "kmeans",
    iteration: Annotated[int, typer.Option(help="Which draw of parameters to use.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed of the draws.")] = 0,
    k: Annotated[int | None, typer.Option(help="Clusters, instead of a draw from 4..10.")] = None,
    eps: Annotated[float | None, typer.Option(help="DBSCAN's radius, instead of a draw from the data.")] = None,
    min_pts: Annotated[int, typer.Option(help="Neighbours that make a point a core point.")] = 10,
    label: Label = None,
) -> None:
    """Cluster the points in one way; prints the parameters as JSON."""
    import numpy as np

    from qloom.clustering import tasks
    from qloom.clustering.data import load
    from qloom.clustering.parameters import Ranges, draw, eps_range

    points = load(data, label).points
    ranges = Ranges(methods=(method,), min_pts=min_pts, eps=None if eps is None else (eps, eps))
    if k is not None:
        ranges = Ranges(methods=(method,), k=(k, k), linkage_k=k, min_pts=min_pts, eps=ranges.eps)
    ranges.check(len(points))
    span = ranges.eps or (eps_range(points, min_pts) if method == "dbscan" else (1.0, 1.0))
    parameters = draw(ranges, span, seed, iteration)[0]
    labels = tasks.clustering.function(points, parameters)
    _save(np, out, labels)
    _print({**parameters, "clusters": int(labels.max()) + 1, "noise": int((labels < 0).sum())})


@app.command()
def qubo(
    data: DataFile,
    clusterings: Annotated[list[Path], typer.Argument(help="Label files; each is named after its file.")],
    out: Annotated[Path, typer.Option(help="The QUBO goes here, as JSON.")],
    cells: Annotated[Path, typer.Option(help="The cell of each point goes here, as npy: `score` needs it.")],
    weights: Annotated[str, typer.Option(help="silhouette or size.")] = "silhouette",
    penalty: Annotated[str | None, typer.Option(help="tight or published. [default: by the weights]")] = None,
    label: Label = None,
    threads: Threads = 1,
    precision: Precision = "single",
) -> None:
    """Build the QUBO that chooses clusters without overlaps."""
    import numpy as np

    from qloom.clustering import tasks
    from qloom.clustering.data import load
    from qloom.clustering.files import to_json, write_json
    from qloom.clustering.overlap import cells_of
    from qloom.clustering.qubo import WEIGHTS, graph

    if weights not in WEIGHTS:
        raise InputError(f"unknown weights {weights!r}", hint=" or ".join(WEIGHTS))
    points = load(data, label).points
    labelings = [_labels(np, path, len(points)) for path in clusterings]
    names = [path.stem for path in clusterings]
    if len(set(names)) < len(names):
        raise InputError("two label files have the same name", hint="clusters are named after their files")
    sums = None
    if weights == "silhouette":
        sums = tasks.cluster_silhouettes.function(points, None, precision, threads, *labelings)
    found = cells_of(labelings)
    overlaps = graph(found, names, sums, penalty)
    write_json(out, to_json(overlaps))
    _save(np, cells, found.of_point)
    _print({"variables": len(overlaps.clusters), "overlaps": len(overlaps.edges), "penalty": overlaps.penalty})


@app.command()
def solve(
    qubo: Annotated[Path, typer.Argument(help="A QUBO file.")],
    out: Annotated[Path, typer.Option(help="The answer (JSON), circuit (OpenQASM 3) or sequence (Pulser JSON).")],
    to: Annotated[str, typer.Option(help="annealing or exact solve it here; qaoa or pulser write a payload.")] = (
        "annealing"
    ),
    shots: Annotated[int, typer.Option(help="Reads of the annealer.")] = 100,
    seed: Annotated[int, typer.Option(help="The seed of the annealer, or of the layout of atoms.")] = 0,
    layers: Annotated[int, typer.Option(help="QAOA layers.")] = 5,
    qubits: Annotated[int | None, typer.Option(help="Qubits of the gate machine, if it is known.")] = None,
    device: Annotated[str, typer.Option(help="analog, digital-analog or mock, for pulser.")] = "analog",
    ignore_weights: Annotated[bool, typer.Option(help="Treat all clusters alike if the device must.")] = False,
) -> None:
    """Solve a QUBO, or write it for gates or neutral atoms."""
    from qloom.clustering.files import read_graph, write_json

    graph = read_graph(qubo)
    if to == "qaoa":
        from qloom.clustering.encodings import qaoa

        out.write_text(qaoa(graph, layers, qubits), encoding="utf-8")
        _print({"written": str(out), "qubits": len(graph.clusters), "layers": layers})
    elif to == "pulser":
        from qloom.clustering.encodings import pulser_sequence

        text = pulser_sequence(graph, device, ignore_weights=ignore_weights, seed=seed)
        out.write_text(text, encoding="utf-8")
        _print({"written": str(out), "atoms": len(graph.clusters), "device": device, "weights": not ignore_weights})
    elif to in ("annealing", "exact"):
        answer = _solved(graph, to, shots, seed)
        write_json(out, answer)
        _print({key: answer[key] for key in ("energy", "gap")})
    else:
        raise InputError(f"--to: unknown target {to!r}", hint="annealing, exact, qaoa or pulser")


@app.command()
def score(
    data: DataFile,
    qubo: Annotated[Path, typer.Argument(help="The QUBO file.")],
    answer: Annotated[Path, typer.Argument(help="The answer file.")],
    cells: Annotated[Path, typer.Option(help="The cells that `qubo` wrote.")],
    out: Annotated[Path, typer.Option(help="Labels go here: CSV, one per point.")],
    label: Label = None,
    threads: Threads = 1,
    precision: Precision = "single",
) -> None:
    """Turn an answer into a partition and score it. Prints a summary as JSON."""
    import numpy as np

    from qloom.clustering import tasks
    from qloom.clustering.answer import repair
    from qloom.clustering.data import load
    from qloom.clustering.files import read_graph, read_values, write_labels
    from qloom.clustering.overlap import adjusted_rand, mutual_information
    from qloom.clustering.qubo import partial_labels
    from qloom.clustering.report import repair_report

    source = load(data, label)
    overlaps = read_graph(qubo)
    choice = repair(overlaps, read_values(answer, overlaps))
    chosen = [overlaps.clusters[i] for i in choice.chosen]
    of_point = _labels(np, cells, len(source.points))
    if chosen and max(max(cluster.cells) for cluster in chosen) > int(of_point.max()):
        raise InputError(f"{cells} does not belong to {qubo}", hint="use the cells that `qubo` wrote with it")
    partial = partial_labels(of_point, chosen)
    labels, value = tasks.partition.function(source.points, partial, None, precision, threads, True)
    write_labels(out, labels)
    summary: dict[str, Any] = {
        "score": value,
        "clusters": [{"name": c.name, "size": c.size, "found_by": list(c.found_by)} for c in chosen],
        "uncovered": int((partial < 0).sum()),
        "repair": repair_report(overlaps, choice),
    }
    if source.truth is not None:
        summary["ari"] = round(adjusted_rand(source.truth, labels), 6)
        summary["nmi"] = round(mutual_information(source.truth, labels), 6)
    _print(summary)


@app.command()
def table(
    seed: Annotated[int, typer.Option(help="The seed of the data and the draws.")] = 0,
    iterations: Annotated[int, typer.Option(help="Draws of parameters per data set.")] = 10,
    pictures: Annotated[Path | None, typer.Option(help="Also draw the tutorial's pictures into this folder.")] = None,
) -> None:
    """Print the table of the ten toy sets. Silhouette / ARI of each clustering and of the aggregations."""
    from qloom.clustering import toys

    typer.echo(toys.markdown(toys.toy_table(seed, iterations)))
    if pictures is not None:
        toys.pictures(pictures, seed)


def _solved(graph: Any, how: str, shots: int, seed: int) -> dict[str, Any]:
    from qloom.clustering.answer import gap, optimum, repair
    from qloom.clustering.qubo import model

    bqm = model(graph)
    best = optimum(graph)
    if how == "exact":
        values = {cluster.name: int(i in best) for i, cluster in enumerate(graph.clusters)}
    else:
        import dwave.samplers

        sampler: Any = dwave.samplers.SimulatedAnnealingSampler
        found = sampler().sample(bqm, num_reads=shots, seed=seed).first.sample
        values = {cluster.name: int(found[cluster.name]) for cluster in graph.clusters}
    chosen = list(repair(graph, values).chosen)
    return {"values": values, "energy": round(float(bqm.energy(values)), 9), "gap": gap(graph, chosen, best)}


def _labels(np: Any, path: Path, points: int) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        labels = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise InputError(f"{path}: not an npy file of integers") from None
    if labels.dtype.kind != "i" or labels.shape != (points,):
        raise InputError(f"{path}: integers for {points} points are needed, not {labels.dtype} {labels.shape}")
    return labels


def _save(np: Any, path: Path, array: Any) -> None:
    with path.open("wb") as file:  # an open file, or numpy adds .npy to other names
        np.save(file, array, allow_pickle=False)


def _print(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value))
