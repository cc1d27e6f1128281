"""The bound on waiting: over random workloads, no task of a session waits longer than was promised."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

from qloom.broker.queue.lines import DeviceSpec, shares_for
from qloom.errors import InputError
from tests.simulation.queueing import Habits, Queueing

SETTINGS = settings(
    max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
HABITS = some.builds(
    Habits,
    close_rate=some.sampled_from([0.0, 0.1]),
    fault_rate=some.sampled_from([0.0, 0.2, 0.5]),
    whole_rate=some.sampled_from([0.0, 0.2]),
    most_at_once=some.integers(1, 4),
    outages=some.booleans(),
    restarts=some.sampled_from([0, 9, 30]),
    share_changes=some.sampled_from([0, 9]),
    interventions=some.sampled_from([0, 9, 90]),
    whole_limits=some.booleans(),
    elsewhere=some.booleans(),
)
SPECS = some.builds(
    DeviceSpec,
    some.just("q"),
    shares=some.integers(1, 6),
    lanes=some.integers(1, 2),
    outside_limit=some.integers(0, 3),
    longest_s=some.sampled_from([0.5, 2.0, 5.0]),
    retries=some.integers(0, 2),
    limit_s=some.sampled_from([None, 2.5, 6.0]),
)


@SETTINGS
@given(
    spec=SPECS,
    habits=HABITS,
    seed=some.integers(0, 10**6),
    clients=some.integers(1, 9),
    outsiders=some.integers(0, 4),
)
def test_no_task_of_a_session_waits_longer_than_promised(spec, habits, seed, clients, outsiders):
    note(f"seed {seed}")
    ended = Queueing(spec, seed, habits).run(60, clients, outsiders)
    for what, waits in (("at the head of its session", ended.head_waits), ("in all", ended.waits)):
        for wait_s, bound_s in waits:
            assert wait_s <= bound_s + 1e-5, f"a task waited {wait_s:.3f} s {what}, and {bound_s:.3f} s were promised"
    assert not ended.expired, f"accepted with a limit that was not kept: {ended.expired[0].submitted}"


def test_the_promise_is_not_idle():
    """Somebody does come near each bound and limits are refused, so the property above says something."""
    spec = DeviceSpec("q", 4, 1, "fifo", outside_limit=1, longest_s=2.0)
    runs = [Queueing(spec, seed, Habits(fault_rate=0.0, most_at_once=3)).run(120, 8, 2) for seed in range(30)]
    for waits in ([wait for run in runs for wait in run.head_waits], [wait for run in runs for wait in run.waits]):
        assert max(wait_s / bound_s for wait_s, bound_s in waits if bound_s > 0) > 0.75
    assert all(run.refused for run in runs)


@given(
    wait_s=some.floats(0.1, 1e4),
    longest_s=some.floats(0.01, 100),
    limit=some.integers(0, 3),
    retries=some.integers(0, 3),
)
def test_shares_follow_from_a_promised_wait(wait_s, longest_s, limit, retries):
    spec = DeviceSpec("q", outside_limit=limit, longest_s=longest_s, retries=retries)
    try:
        shares = shares_for(spec, wait_s)
    except InputError:
        assert spec.promised_wait_s(1) > wait_s - 1e-6
        return
    assert spec.promised_wait_s(shares) <= wait_s + 1e-6
    assert spec.promised_wait_s(shares + 1) > wait_s - 1e-6
