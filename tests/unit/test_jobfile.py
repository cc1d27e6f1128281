"""Job files: what they do in each world, how they are resumed and replayed, and how bad ones are refused."""

from __future__ import annotations

import inspect
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import dimod
import jsonschema
import pytest

from qloom.errors import InputError, JobError, PayloadError
from qloom.jobfile import jobfile_schema, program_from
from qloom.jobfile.condition import is_met, read_value
from qloom.jobfile.model import Until
from qloom.jobfile.qubofile import read_qubo, write_sample
from qloom.jobfile.template import fill
from qloom.journal.file import FILE_NAME, read_events
from qloom.model import Sample
from qloom.programs.load import load_program
from qloom.runner import Outcome, resume, run
from qloom.site import Qpu, Site

Recorded = tuple[str, Outcome]

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QLOOM_HOME", str(tmp_path / "home"))


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
    return [(event["call"], event["names"][0]) for event in outcome.events if event["event"] == "called"]


# Worlds


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """One real run of LOOP, for all tests that go on from it."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QLOOM_HOME", str(folder / "home"))
        path = rising(folder)
        return path, run(path)


def test_local_loop_ends_when_its_condition_is_met(recorded: Recorded) -> None:
    path, outcome = recorded
    assert outcome.result == LOOP_RESULT
    directory = work_directory(outcome)
    assert json.loads((directory / "sample.json").read_text()) == {"sample": {"a": 1, "b": 1}, "energy": -5.0}
    assert (directory / "ran.log").read_text().splitlines() == RAN
    assert sorted(entry.name for entry in Path(path).parent.iterdir()) == ["job.toml", "make.sh", "score.sh"]


def test_virtual_time_runs_nothing_and_goes_to_the_limit(tmp_path: Path) -> None:
    path = rising(tmp_path, LOOP.replace("expected_s = 0.01", "expected_s = 5"))
    outcome = run(path, world="virtual", in_memory=True)
    assert outcome.result == {"iterations": 4, "converged": False, "value": None, "output": "."}
    assert outcome.events[-1]["at_us"] == 4 * 8_000_000
    assert outcome.notes == []
    (note,) = load_program(path).notes_on(outcome.results)
    assert "commands do not run in virtual time" in note
    assert not (tmp_path / "home").exists()


def test_unknown_payload_takes_the_time_of_the_device(tmp_path: Path) -> None:
    path = rising(tmp_path, LOOP.replace("expected_s = 0.01", "").replace("shots = 5", "shots = 1000"))
    outcome = run(path, world="virtual", in_memory=True)
    assert outcome.events[-1]["at_us"] == pytest.approx(4 * (3 + 0.031 + 1000 * 86e-6) * 1e6)


@pytest.mark.parametrize("strategy", ["coschedule", "workflow", "malleable", "split"])
def test_profile_takes_the_same_path_without_running_commands(recorded: Recorded, strategy: str) -> None:
    path, real = recorded
    replayed = run(path, world="virtual", profile=str(real.directory), strategy=strategy, in_memory=True)
    assert load_program(path).notes_on(replayed.results) == []
    assert replayed.result == LOOP_RESULT
    assert calls(replayed) == calls(real)
    assert (work_directory(real) / "ran.log").read_text().splitlines() == RAN


def test_loop_ends_at_its_limit(recorded: Recorded, tmp_path: Path) -> None:
    path = rising(tmp_path, LOOP.replace("max_iterations = 4", "max_iterations = 2"))
    outcome = run(path, world="virtual", profile=str(recorded[1].directory), in_memory=True)
    assert outcome.result == {"iterations": 2, "converged": False, "value": 3, "output": "."}


def test_phases_before_and_after_the_loop(tmp_path: Path) -> None:
    phases = "".join(
        f"""
        [[phase]]
        kind = "classical"
        when = "{when}"
        [[phase.task]]
        command = ["sh", "-c", "echo {when} {{iteration}} {{word}} {{{{}}}} >> log"]
        """
        for when in ("after", "loop", "before")
    )
    path = write(tmp_path, f'name = "three"\nparameters = {{ word = "x" }}\n[loop]\nmax_iterations = 2\n{phases}')
    outcome = run(path, parameters={"word": "y"}, jobs=2)
    assert outcome.results == [{"iterations": 2, "converged": False, "value": None, "output": "."}] * 2
    for job in ("j1", "j2"):  # a work directory each
        lines = (work_directory(outcome, job) / "log").read_text().splitlines()
        assert lines == ["before 0 y {}", "loop 1 y {}", "loop 2 y {}", "after 2 y {}"]


def test_tasks_of_a_phase_are_one_call(tmp_path: Path) -> None:
    second = '[[phase.task]]\nname = "second"\ncommand = ["true"]\n'
    outcome = run(write(tmp_path, one_task("true", more=second)), world="virtual", in_memory=True)
    assert [event["names"] for event in outcome.events if event["event"] == "called"] == [["classical-1-1", "second"]]
    assert outcome.result == {"iterations": 1, "converged": False, "value": None, "output": "."}


# Resume


@pytest.mark.parametrize(
    ("ended", "stale"), [(4, None), (8, '{"energy": -99}')], ids=["files are gone", "files are of another moment"]
)
def test_resume_in_the_middle(recorded: Recorded, tmp_path: Path, ended: int, stale: str | None) -> None:
    _, whole = recorded
    directory = tmp_path / "copy"
    shutil.copytree(whole.directory or "", directory)
    ends = [event for event in whole.events if event["event"] in ("task_ended", "quantum_ended")]
    lines = (directory / FILE_NAME).read_text().splitlines(keepends=True)
    (directory / FILE_NAME).write_text("".join(lines[: ends[ended - 1]["n"] + 1]))
    work = directory / "output" / "j1"
    (work / "ran.log").unlink()
    for name in ("qubo.json", "sample.json", "score.json"):
        (work / name).unlink() if stale is None else (work / name).write_text(stale)

    assert resume(str(directory)).result == LOOP_RESULT

    known = sum(event["event"] == "task_ended" for event in ends[:ended])
    assert (work / "ran.log").read_text().splitlines() == RAN[known:]
    for name in ("qubo.json", "sample.json", "score.json"):
        assert (work / name).read_bytes() == (work_directory(whole) / name).read_bytes()
    assert read_events(directory)[-1]["state"] == "done"


# Quantum phases


def test_payload_from_an_input_file_is_solved_in_every_world(tmp_path: Path) -> None:
    model = dimod.BinaryQuadraticModel({"x": 1, "y": -1}, {("x", "y"): 2}, 0, "SPIN")
    text = """
        name = "input"
        files = ["problem.json"]
        [[phase]]
        kind = "quantum"
        payload = "problem.json"
        result = "answer.json"
    """
    path = write(tmp_path, text, problem_json=json.dumps(model.to_serializable()))
    outcome = run(path)
    assert outcome.result["iterations"] == 1
    answer = json.loads((work_directory(outcome) / "answer.json").read_text())
    assert answer == {"sample": {"x": 0, "y": 1}, "energy": -4.0}
    virtual = run(path, world="virtual", in_memory=True)
    assert calls(virtual) == calls(outcome)


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


@pytest.mark.parametrize("offline", [True, False])
def test_classical_command_stands_in_for_the_device(tmp_path: Path, offline: bool) -> None:
    path = write(tmp_path, CANDIDATE, qubo_json=json.dumps(LONE_QUBO))
    site = Site(qpus=(Qpu(offline=offline),))
    outcome = run(path, site=site)
    value, iterations = (-7, 1) if offline else (-1.0, 2)
    assert outcome.result == {"iterations": iterations, "converged": offline, "value": value, "output": "."}
    assert json.loads((work_directory(outcome) / "sample.json").read_text())["energy"] == value
    virtual = run(path, site=site, world="virtual", profile=str(outcome.directory), in_memory=True)
    assert virtual.result == outcome.result


def test_command_that_uses_the_device_itself(tmp_path: Path) -> None:
    text = """
        name = "own"
        [loop]
        max_iterations = 3
        until = { file = "out/answer.json", key = "qpus.0", equals = "cold" }
        [[phase]]
        kind = "quantum"
        command = ["sh", "{source}/ask.sh"]
        expected_s = 0.02
        outputs = ["out/answer.json"]
    """
    path = write(tmp_path, text, ask_sh='mkdir -p out; echo "{\\"qpus\\": [\\"$QLOOM_QPU\\"]}" > out/answer.json')
    site = Site(qpus=(Qpu(name="cold", technology="trapped-ion"),))
    outcome = run(path, site=site)
    assert outcome.result == {"iterations": 1, "converged": True, "value": "cold", "output": "."}
    assert [event["device"] for event in outcome.events if event["event"] == "quantum_started"] == ["cold"]
    virtual = run(path, site=site, world="virtual", profile=str(outcome.directory), in_memory=True)
    assert virtual.result == outcome.result
    without = run(path, site=site, world="virtual", in_memory=True)
    assert without.result["iterations"] == 3
    assert without.events[-1]["at_us"] == 60_000


def test_qubo_file_forms_agree() -> None:
    options: dict[str, Any] = {"shots": 7, "seconds": None, "device": "q"}
    simple = {"linear": {"0": -1}, "quadratic": [[0, "1", 2], ["1", "1", 3], [1, 0, 1]], "offset": 1}
    payload = read_qubo("f", json.dumps(simple).encode(), **options)
    assert payload.body == {"linear": [["0", -1.0], ["1", 3.0]], "quadratic": [["0", "1", 3.0]], "offset": 1.0}
    assert (payload.shots, payload.device) == (7, "q")
    model = dimod.BinaryQuadraticModel({"0": -1, "1": 3}, {("0", "1"): 3}, 1, "BINARY")
    serialised = read_qubo("f", json.dumps(model.to_serializable()).encode(), **options).body
    assert {tuple(entry) for entry in serialised["linear"]} == {("0", -1.0), ("1", 3.0)}
    assert serialised["offset"] == 1.0
    assert json.loads(write_sample(Sample({1: 0, "b": 1}, -2.0))) == {"sample": {"1": 0, "b": 1}, "energy": -2.0}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("not json", "is not JSON"),
        ("[1, 2]", "a table is needed"),
        ("{}", "it has no variables"),
        ('{"linear": {"a": 1}, "cubic": []}', "'cubic' is not a known key"),
        ('{"linear": [["a", 1]]}', "linear must be a table"),
        ('{"quadratic": [["a", "b"]]}', "is not \\[variable, variable, bias\\]"),
        ('{"quadratic": [["a", "b", "1"]]}', "'1' is no finite number"),
        ('{"linear": {"a": NaN}}', "nan is no finite number"),
        ('{"linear": {"a": 1}, "offset": true}', "True is no finite number"),
        (f'{{"linear": {{"a": 1{"0" * 400}}}}}', "is no finite number"),
        ('{"type": "BinaryQuadraticModel"}', "dimod cannot read it"),
        (json.dumps(dimod.BinaryQuadraticModel("SPIN").to_serializable()), "it has no variables"),
        (json.dumps(dimod.BQM({1: 1, "1": 1}, {}, "SPIN").to_serializable()), "the same name as text"),
    ],
)
def test_payload_that_is_no_qubo(content: str, problem: str) -> None:
    with pytest.raises(PayloadError, match=f"qubo.json .*{problem}"):
        read_qubo("qubo.json", content.encode(), shots=1, seconds=None, device=None)


def test_run_with_a_payload_that_is_no_qubo_is_an_input_error(tmp_path: Path) -> None:
    path = write(tmp_path, CANDIDATE, qubo_json="{}")
    with pytest.raises(PayloadError, match=r"qubo.json is no QUBO: it has no variables"):
        _ = run(path, world="virtual", in_memory=True).result


# Failures while running


def test_task_that_does_not_make_its_output(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"task make did not make qubo.json"):
        _ = run(rising(tmp_path, LOOP.replace('"make.sh", "{iteration}"', '"-c", "true"'))).result


def test_command_that_fails_names_its_task(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"(?s)task classical-1 on n1 exited with 3.*oh no"):
        _ = run(write(tmp_path, one_task("sh", "-c", "echo oh no >&2; exit 3"))).result


def test_payload_of_another_iteration_is_not_there(tmp_path: Path) -> None:
    text = LOOP.replace("qubo.json", "qubo-{iteration}.json")
    text = text.replace('name = "make"', 'name = "make"\nwhen = "before"')
    text = text.replace('"{shell}", "make.sh", "{iteration}"', '"touch", "qubo-{iteration}.json"')
    with pytest.raises(JobError, match=r"qubo-1.json is needed and no phase has made it"):
        _ = run(rising(tmp_path, text)).result


CONTENT = b'{"a": {"b": [1, 2.5]}, "text": "x", "yes": true}'


@pytest.mark.parametrize(
    ("key", "limit", "met"),
    [
        ("a.b.1", {"at_least": 2.5}, True),
        ("a.b.1", {"above": 2.5}, False),
        ("a.b.0", {"at_most": 1}, True),
        ("a.b.0", {"below": 1}, False),
        ("a.b.0", {"equals": 1}, True),
        ("a.b.0", {"equals": True}, False),
        ("yes", {"equals": True}, True),
        ("text", {"equals": "x"}, True),
        ("text", {"equals": "y"}, False),
    ],
)
def test_conditions(key: str, limit: dict[str, Any], met: bool) -> None:
    until = Until.model_validate({"file": "f", "key": key, **limit})
    assert is_met(until, "f", read_value(until, "f", CONTENT)) is met


@pytest.mark.parametrize(
    ("key", "content", "problem"),
    [
        ("a.c", CONTENT, r"f has no a.c \(there is: b\)"),
        ("a.b.7", CONTENT, "f has no a.b.7"),
        ("text", CONTENT, "text in f is 'x', not a number"),
        ("yes", CONTENT, "yes in f is True, not a number"),
        ("a", b"{", "f is not JSON"),
    ],
)
def test_conditions_that_cannot_be_judged(key: str, content: bytes, problem: str) -> None:
    until = Until.model_validate({"file": "f", "key": key, "at_least": 1})
    with pytest.raises(JobError, match=problem):
        is_met(until, "f", read_value(until, "f", content))


# Bad input

ONE = one_task("true")
QUANTUM = '[[phase]]\nkind = "quantum"\npayload = "q.json"\nresult = "s.json"\n'
UNTIL = 'until = { file = "score.json", key = "best.score", at_least = 4 }'


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
        (ONE + "expects_s = 1", r"phase 1, task 1: expects_s is not a known key \(is it expected_s\?\)"),
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
            "phase 1, task 1: {size} in '{size}' is no parameter: known are {iteration}",
        ),
        (ONE.replace('"true"', '"a}"'), "phase 1, task 1: 'a}' has a lone '}'"),
        ("parameters = { iteration = 1 }\n" + ONE, "parameters: iteration has a meaning of its own"),
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


# Parameters


def test_parameters_are_the_signature(tmp_path: Path) -> None:
    program = program_from(Path(write(tmp_path, "parameters = { size = 3, deep = true }\n" + ONE)))
    assert str(inspect.signature(program)) == "(job, *, size=3, deep=True)"
    with pytest.raises(InputError, match=r"has no parameter 'sise' \(is it size\? it takes: size, deep\)"):
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


# Schema and example


def test_published_schema_is_current() -> None:
    assert json.loads(PUBLISHED.read_text()) == jobfile_schema(), (
        "the schema has changed; publish it: python -m qloom.jobfile > docs/reference/jobfile.schema.json"
    )


def test_schema_describes_every_field() -> None:
    schema = jobfile_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith("urn:qloom:")
    for table in (schema, *schema["$defs"].values()):
        assert table["description"]
        assert table["additionalProperties"] is False
        assert [name for name, field in table["properties"].items() if not field.get("description")] == []


def test_schema_agrees_with_the_loader(tmp_path: Path) -> None:
    check = jsonschema.Draft202012Validator(jobfile_schema()).is_valid
    assert check(tomllib.loads(EXAMPLE.read_text()))
    assert check(tomllib.loads(LOOP))
    assert check(tomllib.loads(CANDIDATE))
    assert not check(tomllib.loads(LOOP.replace("max_iterations = 4", "")))
    assert not check(tomllib.loads(LOOP.replace("at_least = 4", "at_least = 4, below = 1")))
    assert not check(tomllib.loads(LOOP.replace("shots = 5", "shot = 5")))
    assert not check(tomllib.loads(LOOP.replace("shots = 5", 'command = ["true"]')))
    assert not check(tomllib.loads(ONE.replace('["true"]', '"true"')))


def test_example_runs() -> None:
    outcome = run(str(EXAMPLE))
    assert outcome.result["converged"] is True
    assert 1 < outcome.result["iterations"] <= 8
    assert (work_directory(outcome) / "report.txt").read_text().startswith("iterations: ")
    replayed = run(str(EXAMPLE), world="virtual", profile=str(outcome.directory), in_memory=True)
    assert replayed.result == outcome.result
