"""What several tests of the broker need."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def open_path():
    """A directory that other users can enter; pytest's own are closed again by any other run of pytest."""
    with tempfile.TemporaryDirectory(prefix="qloom-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)
