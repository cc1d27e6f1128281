"""What is typed, and what qloom said to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

QLOOM = Path(sys.executable).with_name("qloom")
EVERY_STRATEGY = ("coschedule", "offload", "workflow", "pertask", "vqpu", "malleable", "split", "weave")
COMMANDS = ("run", "compare", "resume", "runs", "show", "explain", "timeline", "schema", "demo")
ROW = (
    "strategy",
    "world",
    "jobs",
    "wall_s",
    "node_s_held",
    "node_s_busy",
    "qpu_s_held",
    "qpu_s_busy",
    "vqpu_s_held",
)
QUICK = (
    "--set",
    "classical_s=0.02,0.01",
    "--set",
    "score_s=0.01",
    "--set",
    "quantum_s=0.02",
    "--set",
    "iterations=2",
)
FAILURES = """
    import os, qloom

    @qloom.task(expected_s=1)
    def bad():
        raise ValueError("no luck")

    async def fails(job):
        await job.classical(bad())

    async def raises(job):
        raise KeyError("x")

    async def wide(job):
        await job.classical(bad().needs(nodes=9))

    async def no_circuit(job):
        await job.quantum("not a problem")

    async def no_task(job):
        await job.classical(5)

    async def wants_a_parameter(job, size):
        return size
"""


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def shell(*words, **environment):
    """Type a command, in a process of its own."""
    done = subprocess.run(
        [str(QLOOM), *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def write(name, text):
    Path(name).write_text(textwrap.dedent(text))
    return name


def refused(said, *words):
    """One clear line, exit code 2."""
    assert said.code == 2, said
    assert said.out == ""
    assert len(said.err.splitlines()) == 1, said.err
    assert said.err.startswith("qloom: ")
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err
