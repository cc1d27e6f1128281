"""A policy that a user has written and that is wrong is stopped in one line: which, when, for which job, and why."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from qloom.cli.main import run as run_command
from qloom.lab.load import engine

POLICIES = '''\
from qloom.lab.schedulers import make_policy
from qloom.lab.schedulers.policy import Decision, Policy, Resize


class Good(Policy):
    def decide(self, state):
        free = {resource.name: resource.free for resource in state.resources.values()}
        starts = []
        for entry in state.waiting:
            if entry.amounts[0] <= free["nodes"]:
                free["nodes"] -= entry.amounts[0]
                starts.append((entry, list(entry.amounts)))
        return Decision(starts)


class First(Policy):
    """Gives the first job that waits something else than it wants."""
    def decide(self, state):
        entry = state.waiting[0]
        return Decision([(entry, self.give(entry))])


class TooFew(First):
    def give(self, entry):
        return (entry.amounts[0] - 1,)


class TooMany(First):
    def give(self, entry):
        return (entry.amounts[0] + 1,)


class Negative(First):
    def give(self, entry):
        return (-1,)


class OneMore(First):
    def give(self, entry):
        return (*entry.amounts, 1)


class Text(First):
    def give(self, entry):
        return "four"


class Number(First):
    def give(self, entry):
        return 4


class Twice(Policy):
    def decide(self, state):
        return Decision([(state.waiting[0], state.waiting[0].amounts)] * 2)


class Names(Policy):
    def decide(self, state):
        return Decision([(entry.id, entry.amounts) for entry in state.waiting])


class ReturnsNothing(Policy):
    def decide(self, state):
        pass


class ReturnsList(Policy):
    def decide(self, state):
        return [(state.waiting[0], state.waiting[0].amounts)]


class AsksRigid(Policy):
    def decide(self, state):
        starts = make_policy("fcfs").decide(state).starts
        return Decision(starts, [Resize(entry, 1) for entry in state.running.values()])


class Raises(Policy):
    def decide(self, state):
        return make_policy("easy").decide(state) if state.now_us < 40e6 else self.helper(state)

    def helper(self, state):
        return state.resources["gpu"]  # own line


class Underneath(Policy):
    def decide(self, state):
        return state.line(("gpu",))  # own line


class Books(Policy):
    def decide(self, state):
        starts = []
        for entry in state.waiting:
            if entry.amounts[0] <= state.resources["nodes"].free:
                state.resources["nodes"].free -= entry.amounts[0]  # own line
                starts.append((entry, entry.amounts))
        return Decision(starts)


class Shrinks(Policy):
    def decide(self, state):
        entry = state.waiting[0]
        entry.amounts = (1,)  # own line
        return Decision([(entry, entry.amounts)])


class Pops(Policy):
    def decide(self, state):
        entry = state.waiting[0].line.queue.popleft()  # own line
        return Decision([(entry, entry.amounts)])


class Forgets(Policy):
    def decide(self, state):
        state.running.clear()  # own line
        return make_policy("easy").decide(state)


class Later(Policy):
    def decide(self, state):
        state.now_us += 1  # own line
        return make_policy("easy").decide(state)


class Expects(Policy):
    def decide(self, state):
        decided = make_policy("easy").decide(state)
        for entry, amounts in decided.starts:
            state.resources["nodes"].ends.append((state.now_us + entry.limit_us, entry.order, amounts[0]))  # own line
        return decided


class Sorts(Policy):
    def decide(self, state):
        state.waiting[0].line.queue.rotate()  # own line
        return Decision()


class Again(Policy):
    def decide(self, state):
        return Decision(again_us=state.now_us)


class Restless(Policy):
    def decide(self, state):
        return Decision(again_us=state.now_us + 1)


class RestlessBeside(Policy):
    """Starts one job, and asks again while it runs."""
    def decide(self, state):
        first = state.waiting[0]
        return Decision([] if state.running else [(first, first.amounts)], again_us=state.now_us + 1)


class Lazy(Policy):
    def decide(self, state):
        return Decision()


class Starves(Policy):
    """Never starts job 2."""
    def decide(self, state):
        return Decision([start for start in make_policy("easy").decide(state).starts if start[0].id != 2])


class NoSuper(Policy):
    def __init__(self, **options):
        pass


class NoOptions(Policy):
    def __init__(self):  # own line
        super().__init__()
'''
TRACE = "\n".join(f"{number} {number * 20} -1 100 2 -1 -1 2 200 -1 -1 1 1 -1 -1 1 -1 -1" for number in range(1, 9))


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The script `qloom`, among the files of a user: exit code, standard output, standard error."""
    (tmp_path / "mine.py").write_text(POLICIES)
    (tmp_path / "trace.swf").write_text(TRACE + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    importlib.invalidate_caches()

    def run(policy: str, *more: str) -> tuple[int, str, str]:
        words = ["qloom", "load", "run", "trace.swf", "--nodes", "4", "--policy", policy, *more]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            run_command()
        written = capsys.readouterr()
        return ended.value.code, written.out, written.err

    return run


@pytest.fixture
def said(run):
    """What is said of a policy, in one line and with exit code 2."""

    def said(policy: str, *more: str) -> str:
        code, output, problem = run(policy, *more)
        assert (code, output) == (2, ""), problem
        assert len(problem.splitlines()) == 1, problem
        assert f"policy {policy} " in problem
        return problem

    return said


def own_line(name: str) -> str:
    """Where a class of the file is wrong."""
    lines = POLICIES.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"class {name}("))
    return f"mine.py:{next(number for number in range(first, len(lines)) if 'own line' in lines[number]) + 1}"


def test_a_policy_that_is_right_runs(run):
    code, _output, problem = run("mine:Good", "--json")
    assert code == 0, problem


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("TooFew", "starts job 1 with nodes=1 instead of 2"),
        ("TooMany", "starts job 1 with nodes=3 instead of 2"),
        ("Negative", "starts job 1 with nodes=-1 instead of 2"),
        ("OneMore", "gives job 1 (2, 1), which is not one whole number for each resource"),
        ("Text", "gives job 1 'four', which is not one whole number for each resource"),
        ("Number", "gives job 1 4, which is not one whole number for each resource"),
        ("Twice", "starts job 1, which does not wait"),
        ("Names", "starts 1, which is no entry of state.waiting"),
        ("ReturnsNothing", "returned None instead of a Decision"),
        ("ReturnsList", "returned a list instead of a Decision"),
        ("Again", "wants to be asked again at 20000000, which is not in the future"),
    ],
)
def test_what_a_policy_gives_is_checked(said, name, what):
    found = said(f"mine:{name}", "--interval-s", "0")
    assert what in found
    assert "at 20 s of virtual time" in found


def test_only_malleable_jobs_are_asked_to_resize(said):
    assert "asks job 1 to resize, which is not malleable" in said("mine:AsksRigid")


@pytest.mark.parametrize(
    ("name", "what", "when"),
    [("Raises", "raised KeyError: 'gpu'", "at 40 s"), ("Underneath", "there is no 'gpu' here", "at 20 s")],
)
def test_what_a_policy_raises_is_told_with_its_own_line(said, name, what, when):
    found = said(f"mine:{name}")
    assert what in found
    assert when in found
    assert own_line(name) in found


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Books", "free of nodes"),
        ("Shrinks", "amounts of job "),
        ("Pops", "queue of nodes"),
        ("Forgets", "state.running"),
        ("Later", "state.now_us"),
        ("Expects", "ends of nodes"),
        ("Sorts", "queue of nodes"),
    ],
)
@pytest.mark.parametrize("hybrid", ["0%", "50%"])
def test_a_policy_that_changes_the_state_is_told_what_and_where(said, name, what, hybrid):
    found = said(f"mine:{name}", "--hybrid", hybrid)
    assert f"changes the state that it was shown: {what}" in found
    assert own_line(name) in found
    assert "of virtual time" in found


@pytest.mark.parametrize("name", ["Restless", "RestlessBeside"])
@pytest.mark.parametrize("hybrid", ["0%", "50%"])
def test_a_policy_that_asks_again_and_again_for_nothing_is_stopped(said, monkeypatch, name, hybrid):
    monkeypatch.setattr(engine, "MOST_FRUITLESS", 1000)
    found = said(f"mine:{name}", "--hybrid", hybrid)
    assert "asked for 1000 decisions in a row and started nobody" in found
    assert "of virtual time" in found


@pytest.mark.parametrize("interval_s", ["0", "30"])
@pytest.mark.parametrize("hybrid", ["0%", "50%"])
@pytest.mark.parametrize(("name", "first"), [("Lazy", "1"), ("Starves", "2")])
def test_a_policy_that_leaves_jobs_waiting_on_an_idle_cluster_is_stopped(said, name, first, hybrid, interval_s):
    found = said(f"mine:{name}", "--interval-s", interval_s, "--hybrid", hybrid)
    assert "starts nobody" in found
    assert "of virtual time" in found
    assert hybrid != "0%" or f"job {first} " in found


@pytest.mark.parametrize(
    ("name", "what"),
    [("NoSuper", "super().__init__(**options)"), ("NoOptions", "unexpected keyword argument 'interval_s'")],
)
def test_a_policy_that_cannot_be_made_is_named(said, name, what):
    assert what in said(f"mine:{name}")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1 +\n", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("\nx = y\n", "NameError: name 'y' is not defined"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(said, text, what):
    Path("mine.py").write_text(text)
    found = said("mine:Good")
    assert what in found
    assert "line 1" in found or "mine.py:2" in found
