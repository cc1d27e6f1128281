"""Real MPI for tests: skipped, loudly, where the extra is not installed."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

HERE = importlib.util.find_spec("mpi4py") and shutil.which("mpiexec", path=str(Path(sys.executable).parent))


def pytest_collection_modifyitems(items):
    if not HERE:
        skip = pytest.mark.skip(reason="MPI IS NOT TESTED: mpi4py or mpiexec is not here (pip install 'qloom[mpi]')")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(skip)
