"""Job files that the tests run, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path

from qloom.runs.runner import Outcome
from tests.journals import as_lines

Recorded = tuple[str, Outcome]

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "jobfile" / "sensors.toml"
PUBLISHED = ROOT / "docs" / "reference" / "jobfile.schema.json"
LONE_QUBO = {"linear": {"a": -1, "b": 1}}

# make.sh ITERATION: the problem of one iteration; ran.log counts real runs
MAKE = """
echo "make $1" >> ran.log
echo "{\\"linear\\": {\\"a\\": -$1, \\"b\\": 1}, \\"quadratic\\": [[\\"a\\", \\"b\\", -$1]]}" > qubo.json
"""
SCORE = """
echo "score $1" >> ran.log
energy=$(sed -n 's/.*"energy": -\\([0-9]*\\).*/\\1/p' sample.json)
echo "{\\"best\\": {\\"score\\": $energy}}" > score.json
"""
LOOP = """
name = "rising"
files = ["make.sh", "score.sh"]
parameters = { shell = "sh" }

[loop]
max_iterations = 4
until = { file = "score.json", key = "best.score", at_least = 4 }

[[phase]]
kind = "classical"
name = "make"
[[phase.task]]
command = ["{shell}", "make.sh", "{iteration}"]
expected_s = 2
outputs = ["qubo.json"]

[[phase]]
kind = "quantum"
name = "ask"
payload = "qubo.json"
result = "sample.json"
shots = 5
expected_s = 0.01

[[phase]]
kind = "classical"
name = "score"
[[phase.task]]
command = ["{shell}", "score.sh", "{iteration}"]
expected_s = 1
outputs = ["score.json"]
"""
RAN = [f"{step} {iteration}" for iteration in (1, 2, 3) for step in ("make", "score")]
LOOP_RESULT = {"iterations": 3, "converged": True, "value": 5, "output": "."}  # energies -1, -3, -5


def write(folder: Path, text: str, **files: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    (folder / "job.toml").write_text(text)
    return str(folder / "job.toml")


def rising(tmp_path: Path, text: str = LOOP) -> str:
    return write(tmp_path / "job", text, make_sh=MAKE, score_sh=SCORE)


def one_task(*command: str, more: str = "") -> str:
    return f'name = "one"\n[[phase]]\nkind = "classical"\n[[phase.task]]\ncommand = {json.dumps(command)}\n{more}\n'


def work_directory(outcome: Outcome, job: str = "j1") -> Path:
    assert outcome.directory is not None
    return outcome.directory / "output" / job


def calls(outcome: Outcome) -> list[tuple[str, str]]:
    return [(event["call"], event["names"][0]) for event in as_lines(outcome.events) if event["event"] == "called"]


CANDIDATE = """
name = "candidate"
files = ["qubo.json"]
[loop]
max_iterations = 2
until = { file = "sample.json", key = "energy", equals = -7 }
[[phase]]
kind = "quantum"
name = "ask"
payload = "qubo.json"
result = "sample.json"
expected_s = 0.01
[phase.or_classical]
command = ["sh", "-c", "echo '{{\\"sample\\": {{}}, \\"energy\\": -7}}' > sample.json"]
expected_s = 1
"""


ONE = one_task("true")
QUANTUM = '[[phase]]\nkind = "quantum"\npayload = "q.json"\nresult = "s.json"\n'
UNTIL = 'until = { file = "score.json", key = "best.score", at_least = 4 }'
