"""Elastic programs on this machine: real ranks, saved and started anew at each size."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from qloom.errors import InputError, JobError
from qloom.mpi.nodes import LocalNodes
from qloom.mpi.root import ElasticPlan, Root
from tests.mpi import ranks

WAITER = """
import sys, time
from qloom.mpi.elastic import Elastic

run = Elastic()
state = run.register(starts=0, seen=[])
state.starts += 1
until = time.monotonic() + 150
while len(run_sizes := [*state.seen, run.nodes]) and run.nodes != int(sys.argv[1]):
    assert time.monotonic() < until
    time.sleep(0.01)
    state.seen = run_sizes if run_sizes[-1] not in state.seen else state.seen
    run.check()
if run._comm.rank == 0:
    print("sizes", [*state.seen, run.nodes], "size", run._comm.size, flush=True)
"""
GROWER = """
import sys
from qloom.mpi.elastic import Elastic

run = Elastic(every_s=float(sys.argv[2]))
state = run.register(phase=0, sizes=[])
while state.phase < 2:
    run.expand(within_s=float(sys.argv[1]))
    state.sizes = [*state.sizes, run.nodes]
    state.phase += 1
if run._comm.rank == 0:
    print("sizes", state.sizes, flush=True)
"""


class Scarce(LocalNodes):
    """A cluster that has so many nodes for us and no more."""

    def __init__(self, free):
        super().__init__()
        self.free = free
        self.asked = []

    def ask(self, least, most):
        self.asked.append((least, most))
        self._arrived = min(most, self.free) if self.free >= least else None


def events_of(directory):
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


def root_of(tmp_path, program, nodes=None, **more):
    plan = ElasticPlan(program, tmp_path / "root", **{"least": 1, "most": 3, "patience_s": 0.3, **more})
    return Root(plan, nodes or LocalNodes())


def start_root(tmp_path, *words):
    command = [*ranks.QLOOM, "mpi", "run", "--directory", str(tmp_path / "root"), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask_for(nodes, tmp_path):
    ranks.until(lambda: (tmp_path / "root" / "offer.json").exists())
    words = [*ranks.QLOOM, "mpi", "resize", str(nodes), "--directory", str(tmp_path / "root")]
    subprocess.run(words, check=True, timeout=ranks.DEADLINE_S)


@pytest.mark.slow
def test_the_example_grows_for_each_classical_phase_and_shrinks_after_it(tmp_path, capfd):
    assert root_of(tmp_path, (str(ranks.EXAMPLES / "elastic.py"), "2")).run()
    assert "total 501500.0, classical phases on [3, 3] nodes, end on 1" in capfd.readouterr().out
    sizes = [event["nodes"] for event in events_of(tmp_path / "root") if event["event"] == "started"]
    assert sizes == [1, 3, 1, 3, 1]
    assert not (tmp_path / "root" / "state").exists()  # it has ended: the next run is a new one


def test_it_goes_on_with_what_it_gets(tmp_path, capfd):
    nodes = Scarce(2)
    program = str(ranks.write(tmp_path / "grower.py", GROWER))
    assert root_of(tmp_path, (program, "30", "0"), nodes).run()
    assert "sizes [2, 2]" in capfd.readouterr().out
    assert nodes.asked == [(2, 3), (3, 3)]  # the second phase asks for the third node again, and does not get it


def test_a_full_cluster_is_waited_for_no_longer_than_allowed(tmp_path, capfd):
    program = str(ranks.write(tmp_path / "grower.py", GROWER))
    assert root_of(tmp_path, (program, "30", "0"), Scarce(0)).run()
    assert "sizes [1, 1]" in capfd.readouterr().out  # the queue's patience ends before the program's


def test_the_inhibitor_keeps_the_size_for_a_time(tmp_path, capfd):
    program = str(ranks.write(tmp_path / "grower.py", GROWER))
    assert root_of(tmp_path, (program, "0.2", "600")).run()
    assert "sizes [1, 1]" in capfd.readouterr().out


@pytest.mark.slow
def test_the_resource_manager_resizes_at_a_safe_point(tmp_path):
    program = str(ranks.write(tmp_path / "waiter.py", WAITER))
    root = start_root(tmp_path, "--nodes", "1-3", program, "2")
    ask_for(2, tmp_path)
    code, out, err = ranks.finish(root)
    assert code == 0, err
    assert "sizes [1, 2] size 2" in out


@pytest.mark.slow
def test_what_the_resource_manager_says_counts_more_than_wishes(tmp_path):
    program = ranks.write(
        tmp_path / "greedy.py",
        """
        from qloom.mpi.elastic import Elastic

        run = Elastic()
        state = run.register(rounds=0)
        while state.rounds < 5:
            run.expand(within_s=0.05)
            state.rounds += run.nodes == 2
        """,
    )
    root = start_root(tmp_path, "--nodes", "1-3", str(program))
    ask_for(2, tmp_path)
    assert ranks.finish(root)[0] == 0
    sizes = [event["nodes"] for event in events_of(tmp_path / "root") if event["event"] == "started"]
    assert sizes[-1] == 2


@pytest.mark.slow
def test_told_to_stop_it_saves_and_the_same_command_goes_on(tmp_path):
    program = str(ranks.write(tmp_path / "waiter.py", WAITER))
    root = start_root(tmp_path, "--nodes", "1-3", "--start", "2", program, "3")
    ranks.until(lambda: (tmp_path / "root" / "events.jsonl").exists())
    root.send_signal(signal.SIGTERM)
    code, out, err = ranks.finish(root)
    assert (code, err) == (75, "")
    assert "run the same command to continue" in out
    again = start_root(tmp_path, "--nodes", "1-3", "--start", "3", program, "3")
    code, out, err = ranks.finish(again)
    assert code == 0, err
    assert "sizes [2, 3] size 3" in out  # what it had seen before is still there


def test_ranks_that_fail_end_the_run_with_one_line(tmp_path):
    program = str(ranks.write(tmp_path / "bad.py", "raise ValueError('no')"))
    with pytest.raises(JobError, match="the ranks ended with exit code 1"):
        root_of(tmp_path, (program,)).run()


def test_without_a_root_the_size_never_changes(tmp_path):
    program = ranks.write(tmp_path / "grower.py", GROWER)
    assert "sizes [1, 1]" in ranks.run(2, program, 5, 0)


@pytest.mark.parametrize(("least", "start", "most"), [(0, 1, 1), (2, 1, 3), (1, 4, 3)])
def test_impossible_sizes_are_refused(tmp_path, least, start, most):
    with pytest.raises(InputError, match="is not possible"):
        ElasticPlan(("program.py",), tmp_path, least=least, most=most, start=start)
