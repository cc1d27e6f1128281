"""Every test has a home of its own, so that no test sees another's runs or the user's.

Property tests draw the same examples in every run, so that a change fails only for what it changed. With
`QLOOM_EXPLORE=1` they draw others: from `QLOOM_SEED`, or else from a number that is printed.
"""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

EXPLORES = os.environ.get("QLOOM_EXPLORE", "0") not in ("", "0")
if EXPLORES:  # in the environment, so that all processes of pytest-xdist draw from the same number
    os.environ.setdefault("QLOOM_SEED", str(secrets.randbelow(2**32)))

# A shell that starts the tests in the background ignores SIGINT for them, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Settings that tests make when they are imported take from the profile what they leave open.
settings.register_profile("repeatable", derandomize=True, database=None, print_blob=True)
settings.register_profile("explore", derandomize=False, database=None, print_blob=True)
settings.load_profile("explore" if EXPLORES else "repeatable")

# Hypothesis also draws constants of the modules of the project that happen to be imported: examples would depend on
# the tests that ran before in the same process, and on every number in the source.
providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads the option
def pytest_configure(config: pytest.Config) -> None:
    if EXPLORES and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = os.environ["QLOOM_SEED"]


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        seed = session.config.getoption("--hypothesis-seed")
        said = f"others, QLOOM_EXPLORE=1 QLOOM_SEED={seed} repeats them" if EXPLORES else "the same in every run"
        reporter.write_line(f"examples of property tests: {said}")


@pytest.fixture(autouse=True)
def qloom_home(tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("QLOOM_HOME", str(home))
    return home


@pytest.fixture
def open_path():
    """A directory that other users can enter; pytest's own are closed again by any other run of pytest."""
    with tempfile.TemporaryDirectory(prefix="qloom-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)
