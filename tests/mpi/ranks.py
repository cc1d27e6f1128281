"""Starting ranks the way a user does, and looking whether any are left."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from qloom.mpi.launch import mpiexec

EXAMPLES = Path(__file__).parents[2] / "examples" / "mpi"
QLOOM = (sys.executable, "-c", "from qloom.cli.main import run; run()")
DEADLINE_S = 180.0


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def start(ranks: int, *words: object, module: str = "qloom.mpi", **variables: str) -> subprocess.Popen[str]:
    """Ranks that run a Python file."""
    launch = mpiexec(ranks)
    return subprocess.Popen(
        [*launch.words, sys.executable, "-m", module, *map(str, words)],
        env={**launch.environment, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How it ended, and what it printed; a test that hangs fails."""
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    return process.returncode, out, err


def run(ranks: int, *words: object, **variables: str) -> str:
    code, out, err = finish(start(ranks, *words, **variables))
    assert code == 0, err
    return out


def processes_with(text: str) -> list[int]:
    """Processes other than this one whose command line has the text in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if text in (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " "):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def until(holds, within_s: float = 120.0) -> None:
    """Returns as soon as it holds; fails if it does not in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not so within {within_s:g} s"
        time.sleep(0.02)
