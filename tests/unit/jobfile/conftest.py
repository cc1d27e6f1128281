"""A home of its own for each test, and one real run for those that go on from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qloom.runs.runner import run
from tests.unit.jobfile.examples import Recorded, rising


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """One real run of LOOP, for all tests that go on from it."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QLOOM_HOME", str(folder / "home"))
        path = rising(folder)
        return path, run(path)
