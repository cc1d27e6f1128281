"""Qiskit programs on a real Slurm: one result under every strategy, through a broker, also when killed; budgets."""

from __future__ import annotations

import pytest

pytest.importorskip("qiskit", reason="NOT TESTED: pip install 'qloom[qiskit]'")
pytest.importorskip("qiskit_aer", reason="NOT TESTED: pip install 'qloom[qiskit]'")

import qloom
from qloom.errors import BudgetSpent
from tests.broker.processes import Service
from tests.interop.cover import IN_TURN, OTHERS, PROGRAMS, SMALL
from tests.interop.killed import DeviceCounter, check_executed, kill_and_resume
from tests.slurm import programs
from tests.slurm.driver import left
from tests.slurm.waiting import until

pytestmark = pytest.mark.slow
SITE = qloom.Site(nodes=2, qpus=(qloom.Qpu("qpu", "photonic"),))
GATES = {"kind": "qaoa", "name": "qpu", "set_up_s": 0.0, "per_shot_s": 0.0}


def run(name, **plan):
    return qloom.run(f"{PROGRAMS}:{name}", parameters=SMALL[name], in_memory=True, **plan)


@pytest.mark.parametrize(("through", "name"), [("this run", "vqe"), ("this run", "qaoa"), ("a broker", "vqe")])
def test_strategies_side_by_side_give_the_results_of_virtual_time(wide_slurm_env, tmp_path, name, through):
    """A job of each strategy in one run: half of them with each program, the others through a broker."""
    broker = through == "a broker"
    strategies = [strategy for strategy, program in (OTHERS if broker else IN_TURN) if program == name]
    expected = [run(name, world="virtual", site=SITE, seed=seed).result for seed in range(len(strategies))]
    service = Service(tmp_path, "tests.broker.plain", devices=[GATES])
    if broker:
        service.start()
    site = qloom.Site(nodes=2, broker=service.address) if broker else SITE
    try:
        found = run(name, world="slurm", site=site, strategy=",".join(strategies), jobs=len(strategies))
    finally:
        if service.process is not None:
            service.stop()
    assert found.errors == []
    assert found.results == expected
    until(lambda: left(wide_slurm_env) == {})


def test_a_driver_that_is_killed_executes_again_what_was_out_and_nothing_else(
    wide_slurm_env, qloom_home, tmp_path, monkeypatch
):
    counter = DeviceCounter(tmp_path, monkeypatch)
    plain = run("vqe", world="virtual", site=SITE).result
    site = tmp_path / "site.toml"
    site.write_text('nodes = 1\n[[qpus]]\nname = "qpu"\ntechnology = "photonic"\n')
    words = ["run", f"{PROGRAMS}:vqe", "--world", "slurm", "--site", str(site), "--set", "maxiter=12"]
    printed, directory, out = kill_and_resume(qloom_home, tmp_path / "output", words)
    assert float(printed) == plain
    check_executed(counter, directory, out)
    until(lambda: left(wide_slurm_env) == {})


def test_a_budget_of_a_run_ends_it_and_a_larger_one_lets_it_continue(wide_slurm_env, qloom_home):
    plan = {"world": "slurm", "site": qloom.Site(nodes=1, qpus=(qloom.Qpu("qpu"),)), "strategy": "coschedule"}
    source = programs.source(programs.phases_of_each_kind)
    (error,) = qloom.run(source, most_qpu_s=1.0, **plan).errors
    assert isinstance(error, BudgetSpent)
    assert "--most-qpu-s" in str(error)
    until(lambda: left(wide_slurm_env) == {})
    assert qloom.resume("last", most_qpu_s=600.0).errors == []
    until(lambda: left(wide_slurm_env) == {})
