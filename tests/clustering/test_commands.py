"""The steps as commands, with files in between."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from qloom.cli.clustering import app
from qloom.clustering.data import blobs
from qloom.errors import InputError


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def points(tmp_path):
    data = blobs(400)
    path = tmp_path / "points.csv"
    np.savetxt(path, np.column_stack([data.points, data.truth]), delimiter=",", header="x,y,kind", comments="")
    return path


@pytest.fixture
def qubo(points, tmp_path):
    for method in ("kmeans", "dbscan", "single"):
        call("cluster", points, "--label", "kind", "--method", method, "--out", tmp_path / f"{method}.npy")
    files = [tmp_path / f"{method}.npy" for method in ("kmeans", "dbscan", "single")]
    out = tmp_path / "qubo.json"
    call("qubo", points, *files, "--label", "kind", "--out", out, "--cells", tmp_path / "cells.npy")
    return out


@pytest.mark.parametrize("to", ["annealing", "exact"])
def test_the_loop_by_hand(points, qubo, tmp_path, to):
    answer, labels = tmp_path / "answer.json", tmp_path / "labels.csv"
    solved = json.loads(call("solve", qubo, "--to", to, "--out", answer))
    assert solved["gap"] == 0
    cells = tmp_path / "cells.npy"
    scored = call("score", points, qubo, answer, "--label", "kind", "--cells", cells, "--out", labels)
    summary = json.loads(scored)
    assert summary["score"] > 0.7
    assert summary["ari"] > 0.5
    assert len(np.loadtxt(labels, skiprows=1)) == 400


def test_parameters_can_be_given_or_drawn(points, tmp_path):
    out = tmp_path / "labels.npy"
    given = json.loads(call("cluster", points, "--label", "kind", "--k", 3, "--out", out))
    assert (given["k"], given["clusters"]) == (3, 3)
    assert np.load(out).max() == 2
    drawn = json.loads(
        call("cluster", points, "--label", "kind", "--method", "dbscan", "--iteration", 2, "--out", out)
    )
    assert drawn["eps"] > 0
    chosen = json.loads(call("cluster", points, "--label", "kind", "--method", "dbscan", "--eps", 1.5, "--out", out))
    assert chosen["eps"] == 1.5


def test_a_qubo_file_can_be_read_without_qloom(qubo):
    content = json.loads(qubo.read_text())
    names = set(content["linear"])
    assert names == {cluster["name"] for cluster in content["clusters"]}
    weight = {name: -bias for name, bias in content["linear"].items()}
    assert all(value > min(weight[a], weight[b]) for a, b, value in content["quadratic"])


def test_payloads_for_machines(qubo, tmp_path):
    circuit = tmp_path / "circuit.qasm"
    said = json.loads(call("solve", qubo, "--to", "qaoa", "--layers", 2, "--out", circuit))
    assert circuit.read_text().startswith("OPENQASM 3.0;")
    with pytest.raises(InputError, match=f"the QUBO has {said['qubits']} variables, the device 3 qubits"):
        call("solve", qubo, "--to", "qaoa", "--qubits", 3, "--out", circuit)
    with pytest.raises(InputError, match="--to: unknown target 'guess'"):
        call("solve", qubo, "--to", "guess", "--out", circuit)


def test_bad_files_are_one_clear_line(points, qubo, tmp_path):
    out, cells, answer = tmp_path / "out", tmp_path / "cells.npy", tmp_path / "answer.json"
    label = ("--label", "kind")
    call("solve", qubo, "--out", answer)
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "text.json").write_text("hello")
    np.save(tmp_path / "short.npy", np.zeros(3, np.int8))
    np.save(tmp_path / "real.npy", np.zeros(400))
    np.save(tmp_path / "zero.npy", np.zeros(400, np.int8))
    build = ("qubo", points, *label, "--out", out, "--cells", cells)
    score = ("score", points, *label, "--out", out)
    for words, said in [
        (("solve", tmp_path / "none.json", "--out", out), "no such file"),
        (("solve", tmp_path / "text.json", "--out", out), "not a JSON file"),
        (("solve", tmp_path / "empty.json", "--out", out), "not a QUBO file"),
        ((*score, qubo, tmp_path / "empty.json", "--cells", cells), '"values" must give 0 or 1'),
        ((*score, qubo, answer, "--cells", tmp_path / "zero.npy"), "does not belong to"),
        ((*build, tmp_path / "none.npy"), "no such file"),
        ((*build, tmp_path / "short.npy"), "integers for 400 points are needed, not int8 (3,)"),
        ((*build, tmp_path / "real.npy"), "integers for 400 points are needed, not float64"),
        ((*build, tmp_path / "text.json"), "not an npy file"),
        ((*build, cells, cells), "two label files have the same name"),
        ((*build, cells, "--weights", "colour"), "unknown weights 'colour'"),
        (("cluster", points, *label, "--k", 500, "--out", out), "k = 500 clusters cannot be made of 400 points"),
        (("cluster", points, *label, "--method", "guess", "--out", out), "unknown clustering method 'guess'"),
    ]:
        with pytest.raises(InputError) as refused:
            call(*words)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
