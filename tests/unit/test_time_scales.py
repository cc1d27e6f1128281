"""The fit of a QPU's time scale: on made data, and on measured files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qloom.devices.fit import fit, main, read_tasks
from qloom.devices.profiles import load_profile
from qloom.errors import InputError

DATA = Path(__file__).parent / "data" / "qpu-seconds"


def made(set_up_s, per_shot_s, noise=0.1, tasks=200, seed=1):
    """Tasks with relative noise, and how far off an ideal fit would typically be."""
    random = np.random.default_rng(seed)
    work = np.round(np.exp(random.uniform(np.log(100), np.log(1e6), tasks)))  # set-up shows in short tasks only
    true = set_up_s + work * per_shot_s
    table = np.column_stack([np.ones_like(work), work]) / true[:, None]
    ideal = noise * np.sqrt(np.diag(np.linalg.inv(table.T @ table)))
    return work, true * (1 + random.normal(0, noise, tasks)), ideal


@pytest.mark.parametrize("scale", [(3.0, 4e-4), (0.5, 4e-4), (10.0, 1e-6), (2.0, 1e-3)])
def test_a_made_time_scale_is_found_again_without_a_lean(scale):
    off = []
    for seed in range(40):
        work, seconds, ideal = made(*scale, seed=seed)
        found = fit(work, seconds)
        off.append((np.array([found.set_up_s, found.per_shot_s]) - scale) / ideal)
    assert np.abs(off).max() < 4
    assert np.abs(np.mean(off, axis=0)).max() < 0.5  # errors as a share of measured lengths would lean by 1 to 2


def test_a_few_tasks_that_took_much_longer_change_little():
    work, seconds, _ = made(3.0, 4e-4)
    seconds[::20] *= 5
    found = fit(work, seconds)
    assert found.per_shot_s == pytest.approx(4e-4, rel=0.05)
    assert found.set_up_s == pytest.approx(3.0, rel=0.2)


def test_exact_data_is_told_exactly():
    found = fit(np.array([1e3, 1e4, 1e5]), 2.0 + 5e-4 * np.array([1e3, 1e4, 1e5]))
    assert (found.set_up_s, found.per_shot_s) == (pytest.approx(2.0), pytest.approx(5e-4))
    assert (found.r2, found.mean_absolute_error_s) == (pytest.approx(1), pytest.approx(0, abs=1e-9))


def test_neither_figure_is_negative():
    work = np.array([1e3, 2e3, 4e3, 8e3])
    assert fit(work, 1e-3 * work - 0.3).set_up_s == 0
    assert fit(work, 5.0 - 1e-4 * work).per_shot_s == 0


def test_the_command_prints_the_fit_and_says_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "made.csv"
    rows = [f"{circuits},{shots},{2 + circuits * shots * 5e-4}" for circuits in (1, 5) for shots in (1000, 9000)]
    path.write_text("\n".join(["num_circuits,shots,qpu_seconds", *rows]))
    printed = subprocess.run(
        [sys.executable, "-m", "qloom.devices.fit", str(path)], capture_output=True, text=True, check=True
    ).stdout
    for text in ("made.csv: 4 tasks", "set-up    2.000 s", "per shot  0.5000 ms", "R2        1.0000"):
        assert text in printed
    assert main([str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["per_shot_s"] == pytest.approx(5e-4)
    path.write_text("shots,seconds\n1,2\n")
    assert main([str(path)]) == 2
    assert "made.csv, line 2: no shots and qpu_seconds" in capsys.readouterr().err
    assert main([str(tmp_path / "none.csv")]) == 2
    with pytest.raises(InputError, match="at least three tasks"):
        fit(np.array([1.0, 2.0]), np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("file", "profiles", "r2", "relative"),
    [
        ("helmi.csv", ["helmi"], 0.999, 0.04),
        ("vtt-q50.csv", ["vtt-q50", "leonardo-iqm"], 0.93, 0.17),
    ],
)
def test_the_figures_that_are_carried_are_those_of_the_measured_files(file, profiles, r2, relative):
    found = fit(*read_tasks(DATA / file))
    assert found.r2 > r2
    assert found.mean_relative_error < relative
    for name in profiles:
        carried = load_profile(name)
        assert carried.set_up_s == pytest.approx(found.set_up_s, rel=0.01)
        assert carried.per_shot_s == pytest.approx(found.per_shot_s, rel=0.01)
