"""The table of the docs, and what it must show."""

from __future__ import annotations

from typer.testing import CliRunner

from qloom.cli.clustering import app
from qloom.clustering.toys import CONVEX, TOYS, markdown, toy_table


def test_on_convex_sets_the_aggregate_is_as_good_as_the_best_clustering():
    rows = toy_table()
    for name in CONVEX:
        own = {row.method: row.silhouette for row in rows if row.data == name}
        aggregate = own["aggregate, silhouette"]
        assert aggregate >= max(own.values()) - 1e-9
    text = markdown(rows)
    assert len(text.splitlines()) == 2 + len(TOYS)


def test_the_command_prints_the_same_table():
    done = CliRunner().invoke(app, ["table", "--iterations", "1"])
    assert done.exit_code == 0
    assert done.stdout.strip() == markdown(toy_table(iterations=1))
