"""The set-up scripts: one line for each step, the rest in a log, uv or pip, and what they say when they fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.install.checkout import fresh_copy

TOOLS = ("bash", "cat", "chmod", "cut", "dirname", "env", "grep", "id", "mkdir", "sed", "sha256sum", "tail", "touch")
NOISE = "WARNING: you should see this in a log only"

# Stands in for python3: makes environments in no time, and does as it is told in place of pip.
PYTHON = f"""#!/bin/sh
case "$*" in
    "-c import sys"*) echo "$0" ;;
    "-m pip config list") echo "$PIP_CONFIG" ;;
    "-m venv "*) mkdir -p "$3/bin" && cat "$0" >"$3/bin/python" && chmod +x "$3/bin/python" ;;
    "-m pip --version") echo pip ;;
    "-m pip install"*)
        echo "pip $*" >>calls; echo "{NOISE}"; echo "no wheel of numpy" >&2
        [ -z "$PIP_FAILS" ] || exit 1
        cat qloom-stand-in >"$(dirname "$0")/qloom" && chmod +x "$(dirname "$0")/qloom" ;;
esac
"""
UV = f"""#!/bin/sh
[ "$1" != --version ] || exit 0
echo "uv $*" >>calls; echo "{NOISE}"; echo "index ${{UV_DEFAULT_INDEX:-}} cert ${{SSL_CERT_FILE:-}}" >>calls
[ -z "$UV_FAILS" ] || {{ echo "uv cannot reach the index" >&2; exit 1; }}
case "$1" in
    venv) mkdir -p .venv/bin && touch .venv/bin/python && chmod +x .venv/bin/python ;;
    pip) cat qloom-stand-in >.venv/bin/qloom && chmod +x .venv/bin/qloom ;;
esac
"""


class Newcomer:
    """A fresh checkout, and a machine with little more than Python."""

    def __init__(self, folder: Path) -> None:
        self.checkout = fresh_copy(folder / "qloom", "scripts", "pyproject.toml", "constraints.txt")
        self.tools, self.stand_ins = folder / "tools", folder / "stand-ins"
        self.tools.mkdir()
        for tool in TOOLS:
            (self.tools / tool).symlink_to(shutil.which(tool))
        self.stand_ins.mkdir()  # a folder without links: what is written here must not replace a real program
        (self.checkout / "qloom-stand-in").write_text("#!/bin/sh\necho qloom $*\n")
        self.has("python3", PYTHON)

    def has(self, name: str, content: str) -> None:
        (self.stand_ins / name).write_text(content)
        (self.stand_ins / name).chmod(0o755)

    def runs(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [f"scripts/{words[0]}", *words[1:]],
            cwd=self.checkout,
            env={"PATH": f"{self.stand_ins}:{self.tools}", **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def calls(self) -> str:
        return (self.checkout / "calls").read_text()

    def log(self, name: str) -> str:
        return (self.checkout / "build" / "logs" / f"{name}.log").read_text()


@pytest.fixture
def newcomer(tmp_path):
    return Newcomer(tmp_path)


def test_the_set_up_is_one_line_and_the_rest_is_in_a_log(newcomer):
    newcomer.has("uv", UV)
    done = newcomer.runs("demo")
    assert (done.returncode, done.stdout) == (0, "qloom demo --output qloom-demo.html\n")
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(r"making .venv with uv \.\.\. \d+ s", line)
    assert NOISE in newcomer.log("venv")
    assert newcomer.runs("demo").stderr == "", "it is made once"


def test_without_uv_it_comes_from_the_index_of_pip(newcomer):
    done = newcomer.runs("demo")
    assert done.returncode == 0
    assert "pip -m pip install --constraint constraints.txt uv\n" in newcomer.calls()


def test_pip_takes_over_where_uv_cannot(newcomer):
    newcomer.has("uv", UV)
    done = newcomer.runs("demo", UV_FAILS="1")
    assert (done.returncode, done.stdout) == (0, "qloom demo --output qloom-demo.html\n")
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(r"making .venv with uv \.\.\. not possible, with pip \.\.\. \d+ s", line)


def test_a_failure_names_the_log_of_both(newcomer):
    newcomer.has("uv", UV)
    done = newcomer.runs("demo", UV_FAILS="1", PIP_FAILS="1")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "no wheel of numpy" in done.stderr
    assert "build/logs/venv.log" in done.stderr
    for text in ("uv cannot reach the index", "no wheel of numpy", NOISE):
        assert text in newcomer.log("venv")
    assert "making .venv" in newcomer.runs("demo").stderr, "it is tried again"


def test_a_mirror_that_only_pip_knows_is_used_by_uv(newcomer):
    newcomer.has("uv", UV)
    settings = "global.index-url='https://mirror.example/simple'\n:env:.cert='/etc/site.pem'"
    assert newcomer.runs("demo", PIP_CONFIG=settings).returncode == 0
    assert "index https://mirror.example/simple cert /etc/site.pem\n" in newcomer.calls()


def test_where_pip_may_ask_no_index_it_does_the_work(newcomer):
    newcomer.has("uv", UV)
    assert newcomer.runs("demo", PIP_CONFIG="global.no-index='true'").returncode == 0
    assert "uv" not in newcomer.calls()


def test_an_old_python_is_named(newcomer):
    newcomer.has("python3", "#!/bin/sh\nexit 1\n")
    done = newcomer.runs("demo")
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr


@pytest.mark.parametrize("script", ["slurm-packages", "browser-packages"])
def test_packages_that_may_not_be_installed_are_told_loudly(newcomer, script):
    newcomer.has("id", "#!/bin/sh\necho 1000\n")
    newcomer.has("python", "#!/bin/sh\necho slurmctld\n")
    done = newcomer.runs(script)
    assert done.returncode == 0
    assert "IS NOT TESTED: packages can only be installed by root" in done.stderr


@pytest.mark.slow
def test_a_fresh_checkout_is_set_up_for_real_and_quietly(tmp_path):
    checkout = fresh_copy(tmp_path / "qloom")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["scripts/demo", "--help"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(r"making .venv with .* \d+ s", line)
    assert "Where the page goes" in done.stdout
