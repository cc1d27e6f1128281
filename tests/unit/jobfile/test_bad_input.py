"""One clear line for a job file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from qloom.errors import InputError
from qloom.jobfile import program_from
from qloom.runs.runner import run
from tests.unit.jobfile.examples import LOOP, ONE, QUANTUM, UNTIL, rising


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = "x"\na = = 1', r"is not TOML: .*\(at line 2, column 5\)"),
        (ONE.replace('["true"]', '"true"'), "phase 1, task 1: command must be a list of text"),
        (ONE.replace('["true"]', '["true", 1]'), "phase 1, task 1, command 2: must be text"),
        (ONE.replace('["true"]', "[]"), "phase 1, task 1: command must not be empty"),
        (ONE + 'nodes = "2"', "phase 1, task 1: nodes must be a whole number"),
        (ONE + "nodes = 1.5", "phase 1, task 1: nodes must be a whole number"),
        (ONE + "nodes = 0", "phase 1, task 1: nodes must be at least 1"),
        (ONE + "expected_s = true", "phase 1, task 1: expected_s must be a number"),
        (ONE + "expected_s = inf", "phase 1, task 1: expected_s must be a finite number"),
        (ONE + "expects_s = 1", r"phase 1, task 1: expects_s is not a known key \(did you mean expected_s\?\)"),
        ("colour = 1\n" + ONE, "colour is not a known key$"),
        (ONE.replace("name", "title"), "name is missing"),
        (ONE.replace('name = "one"', "name = 1"), "job.toml: name must be text"),
        ('name = "x"', "phase is missing"),
        ('name = "x"\nphase = 1', r"phase must be \[\[phase\]\] tables"),
        ('name = "x"\n[[phase]]\nkind = "classical"', r"phase 1: task is missing \(write \[\[phase.task\]\]"),
        ('name = "x"\n[[phase]]\nkind = "magic"', "phase 1: kind must be 'classical' or 'quantum'"),
        ('name = "x"\nphase = [1]', "phase 1: kind must be"),
        (ONE + '[[phase]]\nkind = "quantum"', "phase 2: payload is missing"),
        (ONE + QUANTUM + 'command = ["true"]', "phase 2: payload and command are two ways to use a QPU"),
        (ONE + QUANTUM, "phase 2: no earlier phase makes the payload 'q.json'"),
        (
            QUANTUM.join(('name = "x"\n', ONE.partition("\n")[2] + 'outputs = ["q.json"]')),
            "phase 1: no earlier phase",
        ),
        (ONE + QUANTUM + "[phase.or_classical]\nnodes = 1", "phase 2, or_classical: command is missing"),
        (ONE + 'outputs = ["/tmp/x"]', "phase 1, task 1: '/tmp/x' must be a file inside the work directory"),
        (ONE + 'outputs = ["a/../../x"]', "must be a file inside the work directory"),
        (ONE + 'outputs = ["a", "a"]', "phase 1: 'a' is made twice in the same phase"),
        (
            ONE.replace('"true"', '"{size}"'),
            "phase 1, task 1: {size} in '{size}' is not a parameter: known are {iteration}",
        ),
        (ONE.replace('"true"', '"a}"'), "phase 1, task 1: 'a}' has a lone '}'"),
        ("parameters = { iteration = 1 }\n" + ONE, "parameters: iteration is reserved"),
        ("parameters = { a-b = 1 }\n" + ONE, "parameters: 'a-b' cannot be the name of a parameter"),
        ("parameters = { lambda = 1 }\n" + ONE, "parameters: 'lambda' cannot be the name of a parameter"),
        ("parameters = { a = [1] }\n" + ONE, "parameters: a must be a number, text, true or false"),
        ("parameters = 1\n" + ONE, "parameters must be a table"),
        ('files = ["none.txt"]\n' + ONE, "files: there is no 'none.txt' in "),
        ('files = ["."]\n' + ONE, "files: '.' must be a file inside"),
        ('files = ["a-{iteration}"]\n' + ONE, "files: 'a-{iteration}' cannot change with the iteration"),
        (
            ONE + ONE.replace('name = "one"', "").replace("kind", 'name = "b"\nkind') * 2,
            "phase 3: phase 2 has the same",
        ),
        (ONE.replace("kind", 'when = "loop"\nkind'), "phase 1: when = 'loop' is of no use without a \\[loop\\]"),
        (ONE.replace("kind", 'when = "later"\nkind'), "phase 1: when must be 'before', 'loop' or 'after'"),
        (LOOP.replace("max_iterations = 4", ""), r"loop: max_iterations is missing \(a loop needs a limit"),
        (LOOP.replace("max_iterations = 4", "max_iterations = 0"), "loop: max_iterations must be at least 1"),
        (
            LOOP.replace("at_least = 4", "at_least = 4, below = 1"),
            "loop, until: .* exactly one of .*, not at_least and b",
        ),
        (LOOP.replace(", at_least = 4", ""), "loop, until: a condition has exactly one of .*, and none is given"),
        (LOOP.replace("at_least = 4", 'at_least = "4"'), "loop, until: at_least must be a number"),
        (LOOP.replace("at_least = 4", "equals = [4]"), "loop, until: equals must be a number, text, true or false"),
        (
            LOOP.replace(UNTIL, UNTIL.replace("score.json", "x.json")),
            "loop, until: no phase of the loop makes 'x.json'",
        ),
        (
            LOOP.replace('kind = "classical"', 'kind = "classical"\nwhen = "before"'),
            "loop, until: no phase of the loop",
        ),
        (ONE.replace("kind", 'when = "after"\nkind') + "[loop]\nmax_iterations = 1", "loop: no phase is in it"),
    ],
)
def test_bad_job_file_is_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = rising(tmp_path, text)
    with pytest.raises(InputError, match=problem.replace("{", "\\{")) as refused:
        run(path)
    assert str(refused.value).count("\n") == 0
    assert path in str(refused.value)
    assert not (tmp_path / "home").exists()


def test_unreadable_job_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the job file .*none.toml: No such file"):
        program_from(tmp_path / "none.toml")
    with pytest.raises(InputError, match="Is a directory"):
        program_from(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe4"')
    with pytest.raises(InputError, match="is not TOML: 'utf-8' codec"):
        program_from(tmp_path / "latin.toml")
