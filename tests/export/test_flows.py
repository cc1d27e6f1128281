"""Programs as flows, and what is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import qloom
from qloom.errors import InputError, PayloadError
from qloom.export import Places, flow_of, read_places, steps, write_cwl, write_shell
from qloom.export.cwl import documents
from qloom.export.flow import QUANTUM
from qloom.export.folder import to_yaml
from qloom.export.places import placed, streamflow_file
from qloom.export.solve import proceeds, run_quantum_step

SENSORS = str(Path(__file__).parents[2] / "examples" / "jobfile" / "sensors.toml")


@pytest.mark.slow
def test_the_steps_together_give_the_programs_own_result(tmp_path):
    parameters = {"blobs": 200, "iterations": 2, "threshold": 0.95, "plot": "", "k_max": 6}
    expected = qloom.run("clustering", parameters=parameters, strategy="workflow", seed=3).result
    flow = flow_of("clustering", parameters, seed=3)
    for name, content in flow.files.items():
        (tmp_path / name).write_bytes(content)
    steps.prepare(tmp_path)
    for iteration in (1, 2):
        for method in ("kmeans", "dbscan", "single"):
            steps.cluster(tmp_path, method, iteration)
        steps.qubo(tmp_path, iteration)
        run_quantum_step(tmp_path / "qubo.json", tmp_path / "answer.json", 100, None, [])
        steps.score(tmp_path, iteration)
    del expected["files"]
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(expected))
    assert json.loads((tmp_path / "status.json").read_text())["proceed"]
    assert not proceeds(tmp_path, 2, 2, "status.json", "proceed", {"equals": False})


def test_the_best_result_stays_when_a_later_one_is_worse(tmp_path):
    flow = flow_of("clustering", {"blobs": 100, "iterations": 3, "threshold": 0.99}, seed=1)
    for name, content in flow.files.items():
        (tmp_path / name).write_bytes(content)
    steps.prepare(tmp_path)
    for method in ("kmeans", "dbscan", "single"):
        steps.cluster(tmp_path, method, 1)
    steps.qubo(tmp_path, 1)
    run_quantum_step(tmp_path / "qubo.json", tmp_path / "answer.json", 100, None, [])
    steps.score(tmp_path, 1)
    best = (tmp_path / "labels.csv").read_text()
    answer = json.loads((tmp_path / "answer.json").read_text())
    worst = dict.fromkeys(answer["sample"], 0)
    (tmp_path / "answer.json").write_text(json.dumps({"sample": worst, "energy": 0.0}))
    state = json.loads((tmp_path / "state.json").read_text())
    state["best"]["rank"] = 1.0  # nothing can be better
    (tmp_path / "state.json").write_text(json.dumps(state))
    steps.score(tmp_path, 2)
    assert (tmp_path / "labels.csv").read_text() == best
    assert json.loads((tmp_path / "summary.json").read_text())["iteration"] == 0


def test_only_what_is_read_before_it_is_made_is_carried_over():
    written = documents(flow_of("clustering", {"blobs": 60}))
    loop = written["clustering.cwl"]["steps"]["loop"]["requirements"]["cwltool:Loop"]["loop"]
    assert set(loop) == {"iteration", "proceed", "state_json", "best_npy"}
    assert written["iteration.cwl"]["inputs"]["state_json"] == "File?"


def test_parameters_and_the_iteration_are_filled_in():
    written = documents(flow_of(SENSORS, {"step": 0.5}))
    words = written["tools/problem.cwl"]["arguments"]
    assert words[2:] == ["interference.csv", "0.5", "$(inputs.iteration)", "qubo.json"]
    assert "0.0" in written["tools/judge.cwl"]["arguments"]
    assert written["sensors.cwl"]["steps"]["report"]["in"]["iteration"] == "loop/iteration_out"


def test_an_emulated_device_is_given_the_seed():
    words = documents(flow_of(SENSORS, {}, 7))["tools/sample.cwl"]["arguments"]
    assert words[words.index("--seed") + 1] == "7"


REPEATING = """
name = "repeating"
files = ["qubo.json"]
[loop]
max_iterations = 3
[[phase]]
kind = "quantum"
payload = "qubo.json"
result = "answer.json"
[[phase]]
kind = "classical"
[[phase.task]]
command = ["sh", "-c", "cat answer.json >> all.txt"]
outputs = ["all.txt"]
"""


def test_an_emulated_device_answers_a_repeated_payload_as_in_a_run(tmp_path):
    one_of_each_pair = {"linear": dict.fromkeys("abcdefgh", -1), "quadratic": [[*"ab", 2], [*"cd", 2], [*"ef", 2]]}
    (tmp_path / "qubo.json").write_text(json.dumps(one_of_each_pair))  # eight answers are as good
    (tmp_path / "w.toml").write_text(REPEATING)
    outcome = qloom.run(str(tmp_path / "w.toml"), seed=7)
    flow = flow_of(str(tmp_path / "w.toml"), {}, 7)
    words = next(flow.steps()).words()
    asked = tmp_path / words[words.index("--asked") + 1]
    answers = []
    for _ in range(3):
        run_quantum_step(tmp_path / "qubo.json", tmp_path / "answer.json", 100, None, [], 7, asked=asked)
        answers.append((tmp_path / "answer.json").read_text())
    assert "".join(answers) == (outcome.directory / "output" / "j1" / "all.txt").read_text()
    assert len(set(answers)) == 3
    workflow = documents(flow)
    assert [name for name in workflow["repeating.cwl"]["outputs"] if "asked" in name] == []
    behind = placed(flow, Places("slurm", "broker"))
    assert "--asked" not in next(behind.steps()).words()


def test_commands_are_wrapped_only_for_an_engine_that_wants_to_know():
    plain = documents(flow_of(SENSORS, {}))["tools/problem.cwl"]["arguments"]
    wrapped = documents(flow_of(SENSORS, {}, recorded=True))["tools/problem.cwl"]["arguments"]
    own = wrapped.index("--") + 1
    assert wrapped[own:] == plain
    assert wrapped[3:own] == ["--name", "problem", "--output", "qubo.json", "--capture", "qubo.json", "--"]


def test_a_task_with_ranks_is_refused(tmp_path):
    text = '[[phase]]\nkind = "classical"\n[[phase.task]]\ncommand = ["./a.out"]\nranks = 4\n'
    (tmp_path / "mpi.toml").write_text(f'name = "mpi"\n{text}')
    with pytest.raises(InputError, match=r"has ranks.*begin its command with srun"):
        flow_of(str(tmp_path / "mpi.toml"), {})


def test_a_candidate_has_two_targets_where_a_broker_is():
    flow = placed(flow_of(SENSORS, {}), Places("slurm", "broker"))
    file = streamflow_file(flow, Places("slurm", "broker"))
    sample = next(b for b in file["workflows"]["sensors"]["bindings"] if b["step"] == "/loop/sample")
    assert [target["deployment"] for target in sample["target"]] == ["qpu", "site"]
    assert file["bindingFilters"]["candidate"]["config"] == {"longestWait": 30.0}
    assert "greedy.py" in next(step for step in flow.steps() if step.location == QUANTUM).words()
    here = placed(flow_of(SENSORS, {}), Places("slurm"))
    assert "greedy.py" not in next(step for step in here.steps() if step.location == QUANTUM).words()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("phases", "has no static shape"),
        ("mine.py", "job file"),
        ("none.toml", "cannot read the job file"),
    ],
)
def test_a_program_without_static_shape_is_refused(program, why):
    with pytest.raises(InputError, match=why):
        flow_of(program, {})


@pytest.mark.parametrize(
    ("program", "given", "why"),
    [
        (SENSORS, {"steep": 1}, "there is no parameter 'steep'"),
        (SENSORS, {"step": "steep"}, "parameter step cannot be"),
        ("clustering", {"blob": 60}, "unexpected keyword argument 'blob'"),
        ("clustering", {}, "one of data and blobs"),
        ("clustering", {"blobs": 60, "threshold": "high"}, "threshold must be a number"),
        ("clustering", {"blobs": 60, "methods": "magic"}, "unknown clustering method 'magic'"),
    ],
)
def test_wrong_parameters_are_refused_in_one_line(program, given, why):
    with pytest.raises(InputError, match=why) as refused:
        flow_of(program, given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[steps]\ncheck = "moon"', "step check is put on 'moon', and there is no such location"),
        ('[steps]\ncheque = "compute"', "there is no step 'cheque'"),
        ('site = "cloud"', "unknown kind of site 'cloud'"),
        ('site = "slurm"\nquantum = "magic"', "cannot go to 'magic'"),
        ("nodes = true\nlocation = 1", "location is not a known key"),
        ('locations = "here"', "locations must be a table"),
        ("site = ", "is not TOML"),
    ],
)
def test_places_that_are_not_there_are_refused_in_one_line(tmp_path, text, why):
    (tmp_path / "places.toml").write_text(text)
    with pytest.raises(InputError, match=why) as refused:
        placed(flow_of(SENSORS, {}), read_places(tmp_path / "places.toml"))
    assert "\n" not in str(refused.value)


def test_a_sites_own_words_reach_sbatch(tmp_path):
    text = 'site = "slurm"\n[locations.compute]\npartition = "batch"\naccount = "p1"\n[locations.fat]\nmem = "1T"\n'
    (tmp_path / "places.toml").write_text(text + '[steps]\ncheck = "fat"\n')
    places = read_places(tmp_path / "places.toml")
    write_shell(tmp_path / "out", flow_of(SENSORS, {}), places)
    script = (tmp_path / "out" / "steps" / "check.sh").read_text()
    assert "#SBATCH --mem=1T\n" in script
    services = streamflow_file(placed(flow_of(SENSORS, {}), places), places)["deployments"]["site"]["config"][
        "services"
    ]
    assert services["fat"]["mem"] == "1T"


def test_scripts_are_shell_and_hold_odd_words(tmp_path):
    (tmp_path / "odd.toml").write_text(
        'name = "odd"\n[loop]\nmax_iterations = 2\n[[phase]]\nkind = "classical"\n[[phase.task]]\n'
        """command = ["sh", "-c", "echo 'a b' $HOME {iteration} > out-{iteration}.txt"]\noutputs = ["o.txt"]\n"""
    )
    write_shell(tmp_path / "out", flow_of(str(tmp_path / "odd.toml"), {}), Places("slurm"))
    for script in (tmp_path / "out").rglob("*.sh"):
        assert subprocess.run(["sh", "-n", script]).returncode == 0
    assert (tmp_path / "out" / "run.sh").read_text().splitlines()[-1].startswith("echo 'submitted")
    line = (tmp_path / "out" / "steps" / "classical_1.sh").read_text().splitlines()[-1]
    told = subprocess.run(
        ["sh", "-c", f"ITERATION=7; {line.replace('exec sh -c', 'printf %s')}"], capture_output=True
    )
    assert told.stdout.decode() == "echo 'a b' $HOME 7 > out-7.txt"


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        write_cwl(tmp_path, flow_of(SENSORS, {}), Places())


def test_a_payload_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "q.json").write_text("{")
    with pytest.raises(PayloadError, match=r"q\.json is not JSON"):
        run_quantum_step(tmp_path / "q.json", tmp_path / "a.json", 10, None, [])


def test_yaml_quotes_what_would_be_read_as_something_else():
    text = to_yaml({"a": "yes", "b": "1.0", "c": ["x y", "$(inputs.a)"], "d": {}, "e": [{"f": None}], "g": ".5"})
    assert text == 'a: "yes"\nb: "1.0"\nc: ["x y", "$(inputs.a)"]\nd: {}\ne:\n  - f: null\ng: ".5"\n'
