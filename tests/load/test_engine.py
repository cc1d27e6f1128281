"""The engine: what a loaded cluster does with rigid jobs, lost nodes, partitions, limits and wrong policies."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from qloom.errors import InputError, NeedError
from qloom.lab.load.background import Failures
from qloom.lab.load.engine import Engine
from qloom.lab.load.run import Load, run_load
from qloom.lab.load.source import lublin
from qloom.lab.load.workload import Hybrid, LoadJob
from qloom.lab.schedulers import make_policy
from qloom.lab.schedulers.policy import Decision, Policy, Resize
from qloom.lab.schedulers.state import Entry, State
from qloom.site import Overheads, Qpu, Site
from qloom.strategies.malleable import MalleableOptions

SITE = Site(nodes=4, qpus=(Qpu(shares=2),))
PATIENCE_S = MalleableOptions().patience_s
PHASES = Hybrid(iterations=2, classical_s=10, quantum_s=5, parts=2)


def rigid(
    number: int, submit_s: float, nodes: int, run_s: float, limit_s: float | None = None, **more: int
) -> LoadJob:
    return LoadJob(number, submit_s, run_s, nodes, run_s if limit_s is None else limit_s, **more)  # type: ignore[arg-type]


def hybrid(
    number: int, submit_s: float, nodes: int, phases: Hybrid = PHASES, limit_s: float | None = None
) -> LoadJob:
    return LoadJob(number, submit_s, phases.run_s, nodes, limit_s or phases.run_s, hybrid=phases)


def starts(jobs: list[LoadJob], **settings: object) -> dict[int, float]:
    """When each job started, without a warm-up."""
    load = Load(jobs, **{"site": SITE, "warm_up": 0.0, **settings})  # type: ignore[arg-type]
    return {record.number: record.start_s for record in run_load(load).records}


class Greedy(Policy):
    """Starts whoever waits, whether there is room or not."""

    def decide(self, state):
        return Decision([(entry, entry.amounts) for entry in state.waiting])


class Twice(Policy):
    def decide(self, state):
        return Decision([(entry, entry.amounts) for entry in state.waiting[:1]] * 2)


class Lazy(Policy):
    def decide(self, state):
        return Decision()


class KeepSmall(Policy):
    """EASY, and malleable jobs are asked to keep to two nodes."""

    def __init__(self, **options):
        super().__init__(**options)
        self._easy = make_policy("easy")

    def decide(self, state):
        asked = [Resize(entry, 2) for entry in state.running.values() if entry.malleable]
        return Decision(self._easy.decide(state).starts, asked)


class AskForTwo(Policy):
    """EASY; from 20 s on, malleable jobs are asked to keep to two nodes."""

    most = 2

    def decide(self, state):
        malleable = [entry for entry in state.running.values() if entry.malleable and state.now_us >= 20e6]
        return Decision(make_policy("easy").decide(state).starts, [Resize(entry, self.most) for entry in malleable])


class AskForOne(AskForTwo):
    most = 1


def named(policy: type[Policy]) -> str:
    return f"{__name__}:{policy.__name__}"


def test_a_short_job_goes_before_a_large_one_that_it_does_not_delay():
    jobs = [rigid(1, 0, 3, 100), rigid(2, 1, 4, 50), rigid(3, 2, 1, 90), rigid(4, 3, 1, 200)]
    assert starts(jobs, policy="fcfs") == {1: 0, 2: 100, 3: 150, 4: 150}
    assert starts(jobs, policy="easy") == {1: 0, 2: 100, 3: 2, 4: 150}


def test_backfill_happens_at_the_interval_and_heads_start_at_once():
    jobs = [rigid(1, 0, 3, 100), rigid(2, 1, 4, 50), rigid(3, 2, 1, 70)]
    assert starts(jobs, policy_options={"interval_s": 30.0}) == {1: 0, 2: 100, 3: 30}


def test_a_job_is_killed_at_its_time_limit():
    record = run_load(Load([rigid(1, 0, 1, 100, 60)], SITE, warm_up=0.0)).records[0]
    assert (record.state, record.end_s) == ("timeout", 60)


@pytest.mark.parametrize("strategy", ["offload", "vqpu", "coschedule"])
def test_a_hybrid_job_is_ended_at_its_limit_and_goes_on_from_its_journal(strategy):
    phases = Hybrid(iterations=4, classical_s=60, quantum_s=5, parts=2)  # 260 s
    job = hybrid(1, 0, 4, phases, limit_s=150)
    (record,) = run_load(Load([job], SITE, strategy=strategy, warm_up=0.0)).records
    assert (record.state, record.requeues) == ("done", 1)
    assert record.end_s == pytest.approx(150 + 130)  # the third classical phase is run again
    assert record.qpu_s_busy == pytest.approx(20)


def test_a_hybrid_job_that_was_ended_at_its_limit_asks_for_twice_the_time():
    phases = Hybrid(iterations=1, classical_s=60, quantum_s=5)
    jobs = [hybrid(1, 0, 4, phases, limit_s=30), rigid(2, 1, 4, 10)]
    record, other = run_load(Load(jobs, SITE, warm_up=0.0)).records
    assert other.start_s == 30
    assert (record.state, record.requeues) == ("done", 2)
    assert record.end_s == pytest.approx(40 + 60 + 5)  # 60 s were enough for the classical phase, which is kept


@pytest.mark.parametrize("parts", [1, 4])
def test_a_time_limit_counts_once_however_many_leases_are_at_it(parts):
    """Four leases of weave end at one instant: the job asks for twice the time, not for 16 times."""
    phases = Hybrid(iterations=1, classical_s=60, quantum_s=5, parts=parts)
    job = hybrid(1, 0, 4, phases, limit_s=25)
    (record,) = run_load(Load([job], SITE, strategy="weave", warm_up=0.0)).records
    asked_s = 60 * 25 / phases.run_s  # for a classical phase
    assert (record.state, record.requeues) == ("done", 2)
    assert record.end_s == pytest.approx(3 * asked_s + 65)


def test_a_job_that_was_requeued_stands_in_line_once():
    """Job 3 went before job 2, and is at the end of the line when it has lost a node."""
    state = State([("nodes", 4)])
    engine = Engine(state, make_policy("easy"), "easy")
    line = state.line(("nodes",))
    for name, nodes, limit_us in (("1", 3, 100), ("2", 4, 50), ("3", 1, 90)):
        engine.submit(Entry(name, line, (nodes,), limit_us, limit_us))
    engine.settle()
    assert list(state.running) == ["1", "3"]
    engine.requeue(state.running["3"])
    assert [entry.id for entry in state.waiting] == ["2", "3"]
    engine.settle()
    assert list(state.running) == ["1", "3"]


def test_partitions_do_not_wait_for_each_other_and_gres_is_counted():
    jobs = [
        rigid(1, 0, 4, 100),
        rigid(2, 1, 4, 100),
        rigid(3, 2, 2, 10, partition=1),
        LoadJob(4, 3, 50, 1, 50, partition=1, gres=(("licence", 1),)),
        LoadJob(5, 4, 50, 1, 50, partition=1, gres=(("licence", 1),)),
    ]
    found = starts(jobs, partitions={"gpu": 8}, gres={"licence": 1})
    assert found == {1: 0, 2: 100, 3: 2, 4: 3, 5: 53}


def test_a_job_that_loses_a_node_is_requeued_and_everything_ends():
    jobs = lublin(300, 16, Random(3))
    result = run_load(
        Load(jobs, Site(nodes=16), load=0.6, arrivals="poisson", failures=Failures(200.0, 600.0), warm_up=0.0)
    )
    assert len(result.records) == 300
    assert result.metrics.requeues > 0
    again = [record for record in result.records if record.requeues]
    assert all(record.node_s_held > record.node_s_busy for record in again)


@pytest.mark.parametrize("strategy", ["coschedule", "malleable"])
@pytest.mark.parametrize("policy", ["conservative", "replan"])
def test_plans_survive_lost_nodes_and_jobs_that_are_late(policy, strategy):
    """A reservation that has become impossible is made anew; everybody gets to run."""
    failures, options = Failures(300.0, 600.0), {"interval_s": 30.0}
    jobs = lublin(120, 16, Random(5))
    load = Load(
        jobs, Site(nodes=16), load=0.8, arrivals="poisson", hybrid=0.3, strategy=strategy, policy=policy,
        policy_options=options, failures=failures,
    )  # fmt: skip
    result = run_load(load)
    assert [record.state for record in result.records if record.kind == "hybrid"] == ["done"] * 36
    assert result.metrics.requeues > 0


def test_a_closed_loop_has_no_more_jobs_than_users_at_once():
    jobs = lublin(60, 16, Random(1))
    records = run_load(Load(jobs, Site(nodes=16), arrivals="closed", users=3, think_s=5.0, warm_up=0.0)).records
    assert len(records) == 60
    for record in records:
        at_once = [other for other in records if other.submit_s <= record.submit_s < other.end_s]
        assert len(at_once) <= 3


@pytest.mark.parametrize("strategy", ["coschedule", "offload", "workflow", "vqpu", "malleable", "split"])
def test_hybrid_jobs_alone_take_as_long_as_their_phases(strategy):
    (record,) = run_load(Load([hybrid(1, 0, 4)], SITE, strategy=strategy, warm_up=0.0)).records
    assert record.state == "done"
    assert record.end_s == pytest.approx(30.0)
    assert record.qpu_s_busy == pytest.approx(10.0)


def test_a_hybrid_job_waits_behind_rigid_ones_and_rigid_ones_behind_it():
    jobs = [rigid(1, 0, 4, 100), hybrid(2, 1, 4), rigid(3, 2, 4, 10)]
    assert starts(jobs, strategy="offload") == {1: 0, 2: 100, 3: 130}
    assert starts(jobs, strategy="workflow") == {1: 0, 2: 100, 3: 110}  # it gave its nodes back for the quantum phase


def test_a_het_job_starts_at_a_backfill_pass_only():
    jobs = [hybrid(1, 1, 2)]
    settings = {"policy_options": {"interval_s": 30.0}}
    assert starts(jobs, strategy="coschedule", **settings) == {1: 30}
    assert starts(jobs, strategy="offload", **settings) == {1: 1}


def test_an_expander_has_the_rest_of_the_time_of_its_job():
    """Job 2 has 4 nodes reserved at 100 s. The malleable job may grow until then, but not beyond."""
    long = Hybrid(iterations=1, classical_s=60, quantum_s=5, parts=3)
    blocked = [rigid(1, 0, 1, 100), rigid(2, 0, 4, 10)]
    fits = LoadJob(3, 1, long.run_s, 3, 90, hybrid=long)
    late = LoadJob(3, 1, long.run_s, 3, 300, hybrid=long)
    held = {
        job.limit_s: run_load(Load([*blocked, job], SITE, strategy="malleable", warm_up=0.0)).records
        for job in (fits, late)
    }
    grown = next(record for record in held[90] if record.number == 3)
    assert (grown.start_s, grown.end_s) == (1, 66)  # three parts at once
    assert next(record.start_s for record in held[300] if record.number == 3) == 110


def test_a_hybrid_job_that_loses_a_node_repeats_only_what_is_missing():
    phases = Hybrid(iterations=6, classical_s=600, quantum_s=100, parts=2)
    jobs = [hybrid(number, number * 100.0, 4, phases, limit_s=50_000) for number in range(1, 31)]
    site = Site(nodes=16)
    result = run_load(Load(jobs, site, strategy="vqpu", failures=Failures(30.0, 600.0), warm_up=0.0))
    assert [record.state for record in result.records] == ["done"] * 30
    lost = [record for record in result.records if record.requeues]
    assert lost
    for record in result.records:
        assert record.qpu_s_busy == pytest.approx(600.0)  # no quantum phase was run twice


def test_a_malleable_job_keeps_to_what_a_policy_asks_of_it():
    phases = Hybrid(iterations=3, classical_s=60, quantum_s=5, parts=4)
    free = run_load(Load([hybrid(1, 0, 4, phases)], SITE, strategy="malleable", warm_up=0.0)).records[0]
    jobs = [hybrid(1, 0, 4, phases, limit_s=1000), rigid(2, 1, 4, 5)]
    asked = run_load(Load(jobs, SITE, policy=named(KeepSmall), strategy="malleable", warm_up=0.0)).records[0]
    assert free.end_s == pytest.approx(195.0)
    assert asked.end_s >= 60 + 2 * 120  # from the second phase on, four parts take turns on two nodes
    assert asked.state == "done"


@pytest.mark.parametrize("shrink_s", [0.0, 2.0])
def test_a_malleable_job_gives_nodes_back_between_two_tasks_of_a_phase(shrink_s):
    """Eight parts of 60 s on four nodes: asked at 20 s, it gives two back at 60 s, and two run the last four."""
    phases = Hybrid(iterations=1, classical_s=60, quantum_s=5, parts=8)
    site = replace(SITE, overheads=Overheads(shrink_s=shrink_s))
    jobs = [LoadJob(1, 0, phases.run_s, 4, 1000, hybrid=phases), rigid(2, 20, 2, 100)]
    settings = {"policy": named(AskForTwo), "strategy": "malleable", "warm_up": 0.0}
    malleable, waiting = run_load(Load(jobs, site, **settings)).records
    assert waiting.start_s == pytest.approx(60 + 2 * shrink_s)  # amid the phase, one node after the other
    assert (malleable.state, malleable.requeues) == ("done", 0)
    assert malleable.end_s == pytest.approx(60 + 2 * 60 + shrink_s + 5)  # it shrinks to one node for the QPU
    assert malleable.node_s_busy == pytest.approx(8 * 60)  # every part ran, once
    assert malleable.node_s_held == pytest.approx(4 * 60 + 3 * shrink_s + 2 * (120 + shrink_s) + 5)


def test_a_malleable_job_keeps_the_nodes_that_its_next_task_needs_whatever_is_asked():
    """Three parts of two nodes each, with room for two: at 60 s it gives two nodes back, not three."""
    phases = Hybrid(iterations=1, classical_s=60, quantum_s=5, parts=3)
    jobs = [rigid(1, 0, 2, 300), LoadJob(2, 0, phases.run_s, 6, 200, hybrid=phases), rigid(3, 20, 2, 100)]
    settings = {"policy": named(AskForOne), "strategy": "malleable", "warm_up": 0.0}
    _first, malleable, waiting = run_load(Load(jobs, Site(nodes=6), **settings)).records
    assert waiting.start_s == pytest.approx(60 + PATIENCE_S)
    assert (malleable.state, malleable.requeues) == ("done", 0)
    assert malleable.end_s == pytest.approx(PATIENCE_S + 2 * 60 + 5)


def test_speculation_that_was_for_nothing_is_counted():
    def wasted(chance: float) -> float:
        phases = Hybrid(iterations=4, classical_s=20, quantum_s=60, parts=2, speculate=chance)
        return (
            run_load(Load([hybrid(1, 0, 2, phases)], SITE, strategy="offload", warm_up=0.0)).records[0].wasted_node_s
        )

    assert wasted(1.0) == 0
    assert wasted(0.0001) == pytest.approx(3 * 2 * 20)


def test_spare_work_counts_as_used_where_starting_it_takes_time_too():
    """A task is busy from when its own code runs, which is later than its start."""
    phases = Hybrid(iterations=4, classical_s=20, quantum_s=60, parts=2, speculate=1.0)
    site = replace(SITE, overheads=Overheads(worker_start_s=0.5, task_s=0.25))
    (record,) = run_load(Load([hybrid(1, 0, 2, phases)], site, strategy="offload", warm_up=0.0)).records
    assert (record.state, record.wasted_node_s) == ("done", 0)


def test_the_same_load_gives_the_same_result():
    load = Load(
        lublin(150, 16, Random(5)), Site(nodes=16), load=0.8, arrivals="poisson", hybrid=0.3, strategy="malleable"
    )
    assert run_load(load).records == run_load(load).records


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": named(Greedy)}, f"policy {named(Greedy)} over-allocates: it starts job 2 on 4 nodes, 1 are free"),
        ({"policy": named(Twice)}, f"policy {named(Twice)} starts job 1, which does not wait"),
        ({"policy": named(Lazy)}, f"policy {named(Lazy)} starts nobody: job 1 waits and there is room"),
        ({"policy": "nobody"}, "unknown policy 'nobody'"),
        ({"policy": "no.such.module:Policy"}, "policy no.such.module:Policy: No module named 'no'"),
        ({"policy": f"{__name__}:starts"}, "has no class starts with a method decide"),
        ({"policy_options": {"width": 3}}, "policy Easy has no option 'width'"),
        ({"load": 0.0}, "the load factor must be above 0, not 0"),
        ({"jobs": []}, "the workload is empty"),
        ({"arrivals": "sometimes"}, "unknown arrivals 'sometimes'"),
        ({"hybrid": 1.5}, "the share of hybrid jobs is between 0 and 100 %, not 150%"),
        ({"warm_up": 1.0}, "the warm-up is a part of the jobs"),
        ({"strategy": "magic"}, "unknown strategy 'magic'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, message):
    jobs = [rigid(1, 0, 3, 100), rigid(2, 1, 4, 50)]
    with pytest.raises(InputError) as refused:
        run_load(Load(**{"jobs": jobs, "site": SITE, **settings}))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_policy_that_over_allocates_is_named_among_hybrid_jobs_too():
    jobs = [rigid(1, 0, 3, 100), hybrid(2, 1, 4)]
    with pytest.raises(InputError, match=r"Greedy over-allocates: it starts job j2\.1 on 4 nodes, 1 are free"):
        run_load(Load(jobs, SITE, policy=named(Greedy)))


def test_a_job_that_could_never_run_is_refused():
    with pytest.raises(NeedError, match="job 1 asks for 5 of nodes and there are 4"):
        run_load(Load([rigid(1, 0, 5, 10)], SITE))
