"""The built-in campaign `weave`: two jobs, three nodes, with and without spare work."""

from __future__ import annotations

import pytest

from qloom.lab.campaign.rows import rows_of
from tests.campaign.helpers import results


@pytest.mark.slow
def test_weave_holds_the_fewest_nodes_and_is_nowhere_far_from_the_fastest():
    rows = rows_of(results("weave"))
    columns = {(row["quantum"], row["spare"]): {} for row in rows}
    for row in rows:
        columns[row["quantum"], row["spare"]][row["strategy"]] = row
    assert len(columns) == 6
    for column, by_name in columns.items():
        weave = by_name.pop("weave")
        assert weave["node_s"] < min(row["node_s"] for row in by_name.values()), column
        assert weave["wall_s"] < 1.02 * min(row["wall_s"] for row in by_name.values()), column
