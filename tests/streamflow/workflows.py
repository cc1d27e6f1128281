"""Exported workflows for tests: written, started, and looked at from outside."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from qloom.broker.client.sync import SyncBrokerClient
from qloom.export import Places, flow_of, write_cwl
from qloom.testbed import Testbed

DEADLINE_S = 120.0

ADDING = """
name = "adding"
[loop]
max_iterations = 5
until = { file = "sum.json", key = "sum", at_least = 2 }
[[phase]]
kind = "classical"
name = "add"
[[phase.task]]
command = ["sh", "-c", "echo {iteration} >> all.txt; echo '{{\\"sum\\":' {iteration} '}}' > sum.json"]
outputs = ["all.txt", "sum.json"]
"""

SLEEPING = """
name = "sleeping"
[[phase]]
kind = "classical"
name = "sleep"
[[phase.task]]
command = ["sh", "-c", "sleep 300; touch a"]
outputs = ["a"]
[[phase.task]]
command = ["sh", "-c", "sleep 300; touch b"]
outputs = ["b"]
"""

ASKING = """
name = "asking"
files = ["qubo.json"]
[[phase]]
kind = "quantum"
name = "ask"
payload = "qubo.json"
result = "answer.json"
"""

ONE_OF_FOUR = {"linear": dict.fromkeys("abcd", -1), "quadratic": [[*pair, 2] for pair in combinations("abcd", 2)]}

# The same payload in every iteration, with four answers that are equally good: the seed decides.
LOOPING = (
    ADDING.replace('name = "adding"', 'name = "looping"\nfiles = ["qubo.json"]')
    + """[[phase.task]]
command = ["cp", "qubo.json", "sent.json"]
outputs = ["sent.json"]
[[phase]]
kind = "quantum"
name = "ask"
payload = "sent.json"
result = "answer.json"
[[phase]]
kind = "classical"
name = "report"
when = "after"
[[phase.task]]
command = ["sh", "-c", "mkdir -p made && cat all.txt answer.json > made/report.txt"]
outputs = ["made/report.txt"]
"""
)

CANDIDATE = (
    ASKING
    + """[phase.or_classical]
command = ["sh", "-c", "echo '{{\\"energy\\": 0, \\"node\\": \\"'$SLURMD_NODENAME'\\"}}' > answer.json"]
"""
)


@dataclass
class Engine:
    """StreamFlow's environment, a folder, and perhaps a Slurm site."""

    bin: Path
    folder: Path
    environment: dict[str, str]
    testbed: Testbed | None = None
    started: list[subprocess.Popen] = field(default_factory=list)

    def jobfile(self, text: str, name: str = "w") -> str:
        """A job file, with a QUBO beside it."""
        file = self.folder / f"{name}.toml"
        file.write_text(text)
        (self.folder / "qubo.json").write_text(json.dumps(ONE_OF_FOUR))
        return str(file)

    def export(self, text: str, name: str = "w", **places) -> Path:
        """The CWL folder of a job file."""
        target = self.folder / name
        write_cwl(target, flow_of(self.jobfile(text, name), {}), Places(**places))
        return target

    def start(self, workflow: Path, **options) -> subprocess.Popen:
        """Run a workflow by StreamFlow; what it says goes to `log` in its folder."""
        command = [self.bin / "streamflow", "run", "streamflow.yml", "--outdir", "results"]
        with (workflow / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=workflow, env=self.environment, stdout=log, stderr=log, **options)
        self.started.append(process)
        return process

    def run(self, workflow: Path) -> int:
        """Run it to its end; returns the exit code."""
        return self.start(workflow).wait(DEADLINE_S)

    def jobs(self, *options: str) -> list[str]:
        """The Slurm jobs that are not over."""
        assert self.testbed is not None
        rows = [line.split() for line in self.testbed.run("squeue", "-h", "-o", "%i %T", *options).splitlines()]
        return [id for id, state in rows if state != "COMPLETING"]

    def queued_tasks(self) -> int:
        """The tasks that wait or run at the broker."""
        with SyncBrokerClient(retry_s=5.0) as broker:
            return sum(row["queued"] + row["on_device"] for row in broker.queue()["devices"])


def until(condition, what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)
