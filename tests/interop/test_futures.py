"""The executor of a job and its joblib backend: calls are tasks, futures work as others do, in every world."""

from __future__ import annotations

import concurrent.futures as cf
import operator
import re
import threading

import pytest

import qloom
from qloom.errors import InputError, QloomError
from qloom.journal.events import TaskEnded, TaskStarted
from qloom.strategies import STRATEGIES

SITE = qloom.Site(nodes=2)


def run(program, **plan):
    return qloom.run(program, **{"world": "virtual", "in_memory": True, "site": SITE, "parameters": {}, **plan})


def refusal(program, **plan):
    with pytest.raises(QloomError) as refused:
        assert run(program, **plan).result is None
    assert "\n" not in str(refused.value)
    return re.sub(r" \(\w+\.py, line \d+\)", "", str(refused.value))  # the line of the program


def square(x):
    if x < 0:
        raise ValueError(f"{x} is negative")
    return x * x


@qloom.task(expected_s=lambda x: float(x), stand_in=lambda x: -x)
def slow(x):
    raise AssertionError("not in virtual time")


def everything(job):
    """Every way to wait for futures, and what comes of it."""
    executor = job.executor(expected_s=2.0)
    futures = [executor.submit(square, x) for x in range(5)]
    first = cf.wait(futures, return_when=cf.FIRST_COMPLETED)
    assert first.done
    assert cf.wait(futures).not_done == set()
    later = [executor.submit(square, x) for x in (6, -7)]
    ended = list(cf.as_completed(later))
    failed = cf.wait([*later, executor.submit(square, 3)], return_when=cf.FIRST_EXCEPTION)
    with job.executor(expected_s=1.0) as other:
        mapped = other.map(square, range(3))
        unseen = other.submit(lambda a, *, b: a + b, 1, b=2)
    assert unseen.done()
    assert not unseen.running()
    assert not unseen.cancel()
    return (
        [future.result() for future in futures],
        [str(future.exception() or future.result()) for future in sorted(ended, key=lambda each: each.number)],
        later[1] in failed.done,
        list(mapped),
        unseen.result(),
    )


EXPECTED = ([0, 1, 4, 9, 16], ["36", "-7 is negative"], True, [0, 1, 4], 3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_futures_under_every_strategy_in_virtual_time(strategy):
    assert run(everything, strategy=strategy).result == EXPECTED


@pytest.mark.parametrize("plan", [{"world": "local"}, {"jobs": 2}, {"world": "local", "jobs": 2}], ids=str)
def test_and_in_threads_and_processes(plan):
    assert run(everything, **plan).results == [EXPECTED] * plan.get("jobs", 1)


def test_each_call_is_a_task_and_the_order_is_that_of_the_ends():
    def program(job):
        with job.executor() as executor:
            futures = [executor.submit(slow, x) for x in (5, 3, 1)]
            return [future.result() for future in cf.as_completed(futures)]

    outcome = run(program, site=qloom.Site(nodes=3))
    assert outcome.result == [-1, -3, -5]
    assert [event.at_us for event in outcome.events if isinstance(event, TaskEnded)] == [
        1_000_000,
        3_000_000,
        5_000_000,
    ]
    assert {event.name for event in outcome.events if isinstance(event, TaskStarted)} == {"slow"}


def test_time_limits_are_of_the_jobs_clock():
    def program(job):
        future = job.executor(expected_s=100.0).submit(square, 3)
        for wait_for in (future.result, future.exception, lambda limit_s: next(cf.as_completed([future], limit_s))):
            with pytest.raises(TimeoutError):
                wait_for(30.0)
        assert cf.wait([future], 5.0).not_done == {future}
        return future.result(6.0)  # of 100 s, 95 have passed

    assert run(program).result == 9


def test_a_call_that_is_cancelled():
    def program(job):
        executor = job.executor(expected_s=10.0)
        kept, dropped = executor.submit(square, 2), executor.submit(square, 3)
        assert dropped.cancel()
        assert dropped.cancelled()
        assert cf.wait([kept, dropped]).not_done == set()
        with pytest.raises(cf.CancelledError):
            dropped.result()
        executor.submit(square, 4)
        executor.shutdown(cancel_futures=True)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(square, 5)
        return kept.result()

    assert run(program).result == 4


def test_threads_of_a_program_may_wait_for_the_same_futures():
    def program(job):
        futures = [job.executor().submit(operator.mul, x, x) for x in range(6)]
        sums = []
        threads = [threading.Thread(target=lambda: sums.append(sum(f.result() for f in futures))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sums

    assert run(program, world="local").result == [55] * 3


@pytest.mark.parametrize(
    ("use", "line"),
    [
        (lambda job: job.executor(expects=1), "an executor has no option 'expects' (expected_s, cpus, memory_mb,"),
        (lambda job: job.executor(cpus=1, expects=1), "an executor has no option 'expects'"),
        (lambda job: job.executor(cpus=0), "cpus must be at least 1"),
        (lambda job: job.executor().submit(square, job.executor().submit(square, 2)), "pass on its result()"),
        (lambda job: job.executor().submit(square, 2), "pass on its result()"),
        (lambda job: job.executor().submit(5), "a task needs a function, not 5"),
    ],
)
def test_what_is_refused_is_said_in_one_line(use, line):
    assert line in refusal(use)


def test_an_async_program_is_shown_the_way():
    async def program(job):
        job.executor()

    assert "an executor waits, which an async program must not (write def, or await job.classical(" in refusal(
        program
    )


def test_a_failed_program_goes_on_with_the_calls_that_had_ended(tmp_path, qloom_home):
    program_file = tmp_path / "squares.py"
    program_file.write_text(
        "import concurrent.futures as cf\n\n\ndef square(x):\n    return x * x\n\n\n"
        "def program(job, stop=False):\n    executor = job.executor(expected_s=2.0)\n"
        "    futures = [executor.submit(square, x) for x in range(4)]\n"
        "    found = sorted(future.result() for future in cf.as_completed(futures))\n"
        f"    if not __import__('pathlib').Path({str(tmp_path / 'third')!r}).exists():\n"
        "        raise RuntimeError('stopped')\n    return found, executor.submit(square, 9).result()\n"
    )
    first = qloom.run(str(program_file), world="virtual", site=SITE)
    assert first.errors
    (tmp_path / "third").touch()
    again = qloom.resume(first.directory)
    assert again.result == ([0, 1, 4, 9], 81)
    ended = [event for event in again.events if isinstance(event, TaskEnded)]
    assert len(ended) == 5  # nothing ran twice


# joblib

joblib = pytest.importorskip("joblib", reason="NOT TESTED: pip install 'qloom[joblib]'")


def roots(job, n_jobs=None):
    with joblib.parallel_config("qloom", n_jobs=n_jobs, expected_s=1.0):
        return joblib.Parallel()(joblib.delayed(square)(x) for x in range(7))


@pytest.mark.parametrize("strategy", ["weave", "workflow", "malleable"])
def test_joblib_runs_on_the_nodes_of_the_job(strategy):
    outcome = run(roots, strategy=strategy)
    assert outcome.result == [x * x for x in range(7)]
    assert sorted(event.name for event in outcome.events if isinstance(event, TaskStarted)) == ["square"] * 7


def test_joblib_in_real_time_and_with_several_jobs():
    assert run(roots, world="local").result == [x * x for x in range(7)]
    assert run(roots, jobs=2, parameters={"n_jobs": 2}).results == [[x * x for x in range(7)]] * 2


def test_one_job_stays_in_the_program():
    outcome = run(roots, parameters={"n_jobs": 1})
    assert outcome.result == [x * x for x in range(7)]
    assert not [event for event in outcome.events if isinstance(event, TaskStarted)]


def test_batches_and_failures_of_joblib():
    def program(job):
        backend = job.joblib_backend(expected_s=1.0)
        with joblib.parallel_config(backend=backend):
            found = joblib.Parallel(batch_size=3)(joblib.delayed(square)(x) for x in range(7))
            with pytest.raises(ValueError, match="-1 is negative"):
                joblib.Parallel()(joblib.delayed(square)(x) for x in (1, -1, 2, 3, 4, 5))
        return found

    outcome = run(program)
    assert outcome.result == [x * x for x in range(7)]


def test_a_backend_without_a_program():
    import qloom.interop.joblib  # noqa: F401

    with pytest.raises(InputError, match="in a synchronous program only"):
        joblib.parallel_config("qloom")


@pytest.mark.parametrize("world", ["virtual", "local"])
def test_a_grid_search_of_scikit_learn_takes_n_jobs_from_the_job(world):
    pytest.importorskip("sklearn", reason="NOT TESTED: pip install scikit-learn")
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    def program(job):
        with joblib.parallel_config("qloom"):
            search = GridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=2).fit(*load_iris(return_X_y=True))
        return search.best_params_, round(float(search.best_score_), 4)

    first, second = run(program, world=world), run(program)
    assert first.result == second.result == ({"C": 1.0}, 0.94)
    works = [{event.work for event in each.events if isinstance(event, TaskEnded)} for each in (first, second)]
    assert works[0] == works[1]  # so that a resumed search finds its fits again
    assert len(works[0]) == 4
