"""What drivers and workers import: seconds of start-up that no task needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("numba", "scipy", "sklearn", "matplotlib", "dimod")

WORKER = """
import sys
import numpy as np
from qloom.clustering import tasks
from qloom.clustering.data import blobs

points = blobs(400).points
points.flags.writeable = False
tasks.find_eps_range.function(points, 10)
joins = tasks.hierarchy.function(points, "single")
joins.flags.writeable = False
given = [
    {"method": "kmeans", "k": 4, "seed": 0},
    {"method": "dbscan", "eps": 1.0, "min_pts": 10},
    {"method": "single", "k": 4},
]
labelings = [tasks.clustering.function(points, one, joins) for one in given]
tasks.cluster_silhouettes.function(points, None, "single", 1, *labelings)
tasks.partition.function(points, labelings[1], None, "single", 1, True)
"""

DRIVER = """
import sys
import qloom
from qloom.clustering import program

settings = {"blobs": 400, "iterations": 1, "plot": ""}
qloom.run(program, parameters=settings, site=qloom.Site(nodes=1), in_memory=True)
"""


@pytest.mark.parametrize("code", [WORKER, DRIVER], ids=["worker", "driver"])
def test_once_compiled_nothing_heavy_is_imported(code, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "QLOOM_HOME": str(tmp_path)}
    told = f"{code}\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    for _ in range(2):  # the first may have to compile
        done = subprocess.run([sys.executable, "-c", told], env=environment, capture_output=True, text=True,
                              check=True, timeout=180)  # fmt: skip
    assert done.stdout.strip() == "[]"
