"""Property tests draw the same examples in every run, and others only if they are told to explore."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRAWS = """
import os
from pathlib import Path

if os.environ.get("IMPORTS_MORE"):
    import qloom.runs.runner  # whose constants Hypothesis would draw as well

from hypothesis import given, settings
from hypothesis import strategies as some

ANYTHING = some.one_of(some.integers(), some.floats(), some.sampled_from(["a", "b"]), some.randoms())


@settings(max_examples=200, deadline=None)
@given(values=some.lists(ANYTHING, max_size=5))
def test_draws(values):
    drawn = [value.random() if hasattr(value, "random") else value for value in values]
    with Path(os.environ["DRAWN"]).open("a") as file:
        print(ascii(drawn), file=file)
"""


@pytest.fixture
def draw(tmp_path):
    """Runs a property test in a process with this environment: the examples it drew, and what pytest printed."""
    (tmp_path / "test_draws.py").write_text(DRAWS)
    drawn = tmp_path / "drawn"

    def run(**environment: str) -> tuple[list[str], str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("QLOOM_", "PYTEST_"))}
        clean["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it takes a while
        options = "-q -p _hypothesis_pytestplugin -p tests.conftest -p no:cacheprovider -c /dev/null"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options.split(), f"--rootdir={tmp_path}", "test_draws.py"],
            env={**clean, "PYTHONPATH": str(ROOT), "DRAWN": str(drawn), **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        examples = drawn.read_text().splitlines()
        drawn.unlink()
        return examples, done.stdout

    return run


def test_the_same_examples_are_drawn_whatever_the_hash_seed_and_the_imported_modules(draw):
    first, said = draw(PYTHONHASHSEED="1")
    assert "the same in every run" in said
    assert len(set(first)) > 50
    assert draw(PYTHONHASHSEED="2", IMPORTS_MORE="1")[0] == first


def test_exploring_draws_others_and_says_how_to_repeat_them(draw):
    first, said = draw(QLOOM_EXPLORE="1")
    seed = said.partition("QLOOM_SEED=")[2].split()[0]
    assert draw(QLOOM_EXPLORE="1", QLOOM_SEED=seed)[0] == first
    assert draw(QLOOM_EXPLORE="1", QLOOM_SEED=str(int(seed) + 1))[0] != first
