"""Every kept run does what it did: who held what and when, every task with its result."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.golden.__main__ import main
from tests.golden.cells import cells
from tests.golden.keep import digest_of, kept_digests, kept_rows

FEWEST = 300


def test_all_cells_are_as_they_were():
    kept, now = kept_digests(), cells()
    assert len(kept) >= FEWEST
    assert sorted(now) == sorted(kept), "python -m tests.golden record keeps cells that are new"
    moved = [name for name, cell in now.items() if digest_of(cell()) != kept[name]]
    words = f"python -m tests.golden diff {' '.join(map(repr, moved[:3]))} says what has changed"
    assert not moved, f"{len(moved)} cells have moved, as {moved[:3]}: {words}"


def test_the_digests_are_of_the_rows_that_are_kept():
    assert {name: digest_of(rows) for name, rows in kept_rows().items()} == kept_digests()


def test_another_process_with_another_seed_of_hashes_sees_the_same(tmp_path):
    names = ["mixed/000", "phases/weave/spare", "resumed/split/after 31", "drivers/03", "load/03"]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.golden", "diff", *names],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout.count("nothing has changed")) == (0, len(names)), done.stdout


def test_a_difference_is_told_row_by_row(monkeypatch, capsys):
    rows = kept_rows()
    name = "phases/offload"
    changed = [rows[name][0].replace("j1", "j7"), *rows[name][1:]]
    monkeypatch.setattr("tests.golden.__main__.kept_rows", lambda: {name: changed})
    assert main(["diff", name]) == 1
    said = capsys.readouterr().out
    assert "1 rows are gone (-), 1 are new (+)" in said
    assert f"- {changed[0]}" in said
    assert f"+ {rows[name][0]}" in said
