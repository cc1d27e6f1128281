"""Parameters of job files."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from qloom.errors import InputError
from qloom.jobfile import program_from
from qloom.jobfile.read import fill
from qloom.runs.runner import run
from tests.unit.jobfile.examples import ONE, one_task, work_directory, write


def test_parameters_are_the_signature(tmp_path: Path) -> None:
    program = program_from(Path(write(tmp_path, "parameters = { size = 3, deep = true }\n" + ONE)))
    assert str(inspect.signature(program)) == "(job, *, size=3, deep=True)"
    with pytest.raises(InputError, match=r"has no parameter 'sise' \(did you mean size\? it takes: size, deep\)"):
        run(str(tmp_path / "job.toml"), parameters={"sise": 1})


@pytest.mark.parametrize(
    ("default", "value", "fits"),
    [
        ("1", 2, True),
        ("1", 2.5, False),
        ("1", "2", False),
        ("1", True, False),
        ("1.5", 2, True),
        ("true", False, True),
        ("true", 0, False),
        ('"a"', "b", True),
        ('"a"', 5, True),
        ('"a"', ["b"], False),
    ],
)
def test_parameters_keep_their_kind(tmp_path: Path, default: str, value: Any, fits: bool) -> None:
    program: Any = program_from(Path(write(tmp_path, f"parameters = {{ p = {default} }}\n" + ONE)))
    if fits:
        program.check_parameters({"p": value})
    else:
        with pytest.raises(InputError, match="parameter p cannot be"):
            program.check_parameters({"p": value})


def test_parameter_in_the_name_of_an_input_file(tmp_path: Path) -> None:
    text = 'files = ["{which}.txt"]\nparameters = { which = "none" }\n' + one_task("cp", "{which}.txt", "copy")
    path = write(tmp_path, text, good_txt="hello")
    outcome = run(path, parameters={"which": "good"})
    assert outcome.errors == []
    assert (work_directory(outcome) / "copy").read_text() == "hello"
    for which, problem in (("none", "there is no 'none.txt'"), ("../x", "inside the work directory")):
        with pytest.raises(InputError, match=f"files: .*{problem}"):
            _ = run(path, parameters={"which": which}, world="virtual", in_memory=True).result


def test_source_is_the_directory_of_the_job_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a b", one_task("cp", "{source}/data.txt", "copy"), data_txt="here")
    outcome = run(path)
    assert outcome.errors == []
    assert (work_directory(outcome) / "copy").read_text() == "here"


def test_fill() -> None:
    assert fill("{a}-{{a}}-{a}}}", {"a": "1"}) == "1-{a}-1}"
