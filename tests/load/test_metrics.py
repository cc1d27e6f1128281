"""The figures, from records whose figures can be worked out by hand."""

from __future__ import annotations

import math
from random import Random

import pytest

from qloom.errors import InputError
from qloom.lab.load.hybrid import Wanted
from qloom.lab.load.metrics import Mean, batch_mean, harm_s, mean_of, measure, percentile, student_t
from qloom.lab.load.records import JobRecord
from qloom.lab.load.run import Load, until_known
from qloom.lab.load.source import lublin
from qloom.site import Site


def record(number, submit_s, start_s, end_s, nodes=1, project=0, kind="rigid", **more):
    run_s = end_s - start_s
    held = {"node_s_held": nodes * run_s, "node_s_busy": nodes * run_s, **more}
    return JobRecord(number, kind, "", project, 0, nodes, run_s, run_s, submit_s, start_s, end_s, "done", **held)


def test_waits_turnarounds_and_slowdowns():
    found = measure([record(1, 0, 0, 100), record(2, 0, 100, 150), record(3, 100, 150, 152)], 4, {}, [], 0.0)
    assert found.all.wait_s.value == pytest.approx(50)
    assert found.all.turnaround_s.value == pytest.approx((100 + 150 + 52) / 3)
    assert found.all.bounded_slowdown.value == pytest.approx((1 + 3 + 5.2) / 3)  # two seconds count as ten
    assert found.all.wait_p95_s == 100
    assert found.hybrid.jobs == 0
    assert math.isnan(found.hybrid.wait_s.value)


def test_utilisation_counts_the_measured_time_only_and_not_what_is_held_idle():
    idle = record(1, 0, 0, 200, nodes=2, node_s_busy=300.0)
    found = measure([idle, record(2, 100, 100, 300, nodes=1)], 4, {}, [], 0.0)
    assert found.node_held == pytest.approx(2 * 100 / (4 * 100))  # from the first submission to the last
    assert found.node_utilisation == pytest.approx(150 / (4 * 100))


def test_the_warm_up_is_cut_by_submission():
    records = [record(number, number, number + 10 - number // 5 * 10, number + 100) for number in range(10)]
    assert measure(records, 100, {}, [], 0.5).all.wait_s.value == 0
    assert measure(records, 100, {}, [], 0.0).all.wait_s.value == 5


def test_a_qpu_idles_while_it_is_wanted():
    second = 10**6
    times = [
        Wanted("qpu", 0, 10 * second, False),
        Wanted("qpu", 5 * second, 20 * second, False),
        Wanted("qpu", 8 * second, 12 * second, True),
        Wanted("other", 0, 100 * second, True),
    ]
    found = measure([record(1, 0, 0, 10), record(2, 100, 100, 110)], 1, {"qpu": 1}, times, 0.0)
    assert found.qpu_idle_while_wanted_s == pytest.approx(8 + 8)
    assert found.qpu_utilisation == pytest.approx(4 / 100)


def test_fairness_is_even_when_projects_fare_alike():
    even = [record(1, 0, 0, 100, project=1), record(2, 0, 0, 50, project=2)]
    uneven = [record(1, 0, 0, 100, project=1), record(2, 0, 900, 1000, project=2)]
    assert measure(even, 4, {}, [], 0.0).fairness == pytest.approx(1)
    assert measure(uneven, 4, {}, [], 0.0).fairness == pytest.approx(11**2 / (2 * 101))


def test_harm_is_what_the_same_rigid_jobs_wait_longer():
    with_hybrid = [record(1, 0, 5, 10), record(2, 1, 8, 9), record(3, 2, 2, 3, kind="hybrid")]
    assert harm_s(with_hybrid, [record(1, 0, 0, 5), record(2, 1, 5, 6)], 0.0).value == pytest.approx((5 + 3) / 2)


def test_nothing_to_measure_is_refused():
    with pytest.raises(InputError, match="no job has ended"):
        measure([], 4, {}, [], 0.0)


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (5, 2.57058), (19, 2.09302), (1000, 1.96234)]
)
def test_students_t(freedom, value):
    assert student_t(freedom) == pytest.approx(value, rel=0.005)


def test_an_interval_covers_the_mean_about_as_often_as_it_says():
    rng = Random(7)
    print("seed 7")
    covered = sum(
        abs(mean.value - 1.0) <= mean.half_width
        for mean in (mean_of([rng.expovariate(1.0) for _ in range(200)]) for _ in range(400))
    )
    assert 0.91 <= covered / 400 <= 0.98


def test_batches_see_that_neighbours_are_alike():
    rng = Random(3)
    values, level = [], 0.0
    for _ in range(4000):
        level = 0.99 * level + rng.gauss(0, 1)
        values.append(level)
    assert batch_mean(values).half_width > 3 * mean_of(values).half_width


def test_too_little_has_no_interval():
    assert math.isnan(batch_mean([1.0, 2.0]).half_width)
    assert Mean(0.0, 1.0).relative == 0.0
    assert percentile([3, 1, 2], 0.95) == 3


def test_runs_are_repeated_until_the_mean_is_known():
    def load_of(seed: int) -> Load:
        jobs = lublin(200, 32, Random(seed))
        return Load(jobs, Site(nodes=32), load=0.3, arrivals="poisson", seed=seed)

    results, metrics = until_known(load_of, 0.25, 40)
    assert 3 <= len(results) < 40
    assert metrics.all.turnaround_s.relative <= 0.25
    assert metrics.all.jobs == 180 * len(results)
    with pytest.raises(InputError, match="--until-ci"):
        until_known(load_of, 0.0, 40)
