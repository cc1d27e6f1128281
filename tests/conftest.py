"""Every test has a home of its own, so that no test sees another's runs or the user's."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def qloom_home(tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("QLOOM_HOME", str(home))
    return home
