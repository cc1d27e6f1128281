"""The queue of a QPU: who is started, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import (
    DeviceUp,
    SessionClosed,
    SessionRequested,
    TaskCancelled,
    TaskFinished,
    TaskSubmitted,
)
from qloom.broker.queue.lines import Backlog, DeviceSpec
from qloom.broker.queue.task import QuantumTask
from qloom.errors import InputError
from qloom.model import QpuHold
from tests.unit.bench import Bench


def test_first_come_first_served():
    bench = Bench()
    bench.submit("a", "b", "c")
    assert bench.started == ["a"]
    assert bench.finish_all() == ["a", "b", "c"]
    assert bench.core.is_idle()


def test_lanes_run_that_many_at_once():
    bench = Bench(lanes=2)
    bench.submit("a", "b", "c", "d")
    assert bench.started == ["a", "b"]
    bench(TaskFinished("b"))
    assert bench.started == ["a", "b", "c"]


def test_sessions_take_turns():
    """A session with much to do does not keep the others waiting for more than one task each."""
    bench = Bench()
    for session in ("s1", "s2", "s3"):
        bench.request(session)
    bench.submit("1a", "1b", "1c", session="s1")
    bench.submit("2a", "2b", session="s2")
    bench.submit("3a", session="s3")
    assert bench.finish_all() == ["1a", "2a", "3a", "1b", "2b", "1c"]


def test_a_session_takes_turns_with_tasks_from_outside():
    """One from outside may go before a session's task, however many have come earlier."""
    bench = Bench()
    bench.request("s")
    bench.submit("s1", "s2", session="s")
    bench.submit("t1", "t2")
    assert bench.finish_all() == ["s1", "t1", "s2", "t2"]


def test_only_as_many_shares_as_there_are():
    bench = Bench(shares=2)
    for session in ("a", "b", "c", "d"):
        bench.request(session)
    assert bench.opened == ["a", "b"]
    bench(SessionClosed("a"))
    assert bench.opened == ["a", "b", "c"]
    bench(SessionClosed("d"))  # it never got one: nothing comes free
    bench(SessionClosed("b"))
    bench.request("e")
    assert bench.opened == ["a", "b", "c", "e"]


def test_a_session_without_its_share_runs_nothing():
    bench = Bench(shares=1)
    bench.request("a")
    bench.request("b")
    bench.submit("b1", session="b")
    assert bench.started == []
    bench(SessionClosed("a"))
    assert bench.opened == ["a", "b"]
    assert bench.started == ["b1"]


def test_a_whole_device_runs_nobody_elses_tasks():
    bench = Bench(lanes=2)
    bench.submit("before")
    bench.request("own", QpuHold.WHOLE)
    bench.submit("after")
    assert bench.opened == [], "the device is still in use"
    assert bench.started == ["before"], "who comes after a whole request waits behind it"
    bench(TaskFinished("before"))
    assert bench.opened == ["own"]
    assert bench.started == ["before"]
    bench.submit("o1", "o2", "o3", session="own")
    assert bench.started == ["before", "o1", "o2"], "the owner has all lanes"
    bench(TaskFinished("o1"))
    bench(TaskFinished("o2"))
    bench(TaskFinished("o3"))
    bench(SessionClosed("own"))
    assert bench.started[-1] == "after"


def test_two_owners_come_one_after_the_other():
    bench = Bench()
    bench.request("a", QpuHold.WHOLE)
    bench.request("b", QpuHold.WHOLE)
    assert bench.opened == ["a"]
    bench(SessionClosed("a"))
    assert bench.opened == ["a", "b"]


def test_a_queued_task_that_is_cancelled_never_starts():
    bench = Bench()
    bench.submit("a", "b", "c")
    bench(TaskCancelled("b"))
    assert bench.stopped == []
    assert bench.finish_all() == ["a", "c"]
    assert bench.core.is_idle()


def test_an_executing_task_that_is_cancelled_is_stopped_and_keeps_its_lane_until_it_has():
    bench = Bench()
    bench.submit("a", "b")
    bench(TaskCancelled("a"))
    assert bench.stopped == ["a"]
    assert bench.started == ["a"]
    bench(TaskFinished("a"))
    assert bench.started == ["a", "b"]


def test_cancelling_the_only_task_of_a_session_gives_its_turn_up():
    bench = Bench()
    bench.request("s")
    bench.submit("x")
    bench.submit("s1", session="s")
    bench(TaskCancelled("s1"))
    bench.submit("y")
    assert bench.finish_all() == ["x", "y"]
    bench.submit("s2", session="s")
    assert bench.started[-1] == "s2"


def test_cancelling_what_is_not_known_does_nothing():
    assert Bench().core.handle(TaskCancelled("never")) == []
    assert Bench().core.handle(SessionClosed("never")) == []


@pytest.mark.parametrize("hold", [QpuHold.SHARE, QpuHold.WHOLE])
def test_closing_a_session_forgets_its_queued_tasks(hold):
    bench = Bench()
    bench.request("s", hold)
    bench.submit("s1", "s2", session="s")
    bench.submit("other")
    bench(SessionClosed("s"))
    assert bench.started == ["s1"], "what executes there goes on"
    assert bench.finish_all() == ["s1", "other"]
    assert bench.core.is_idle()


def test_a_request_that_is_withdrawn_stops_nobody():
    bench = Bench()
    bench.submit("a")
    bench.request("w", QpuHold.WHOLE)
    bench.submit("b")
    bench(SessionClosed("w"))
    assert bench.finish_all() == ["a", "b"]
    assert bench.opened == []


def test_a_device_that_is_away_starts_nothing_until_it_is_back():
    bench = Bench()
    bench.submit("a")
    bench(DeviceUp("q", False))
    assert not bench.core.is_up("q")
    bench.submit("b")
    bench(TaskFinished("a"))
    assert bench.started == ["a"]
    bench(DeviceUp("q", True))
    assert bench.started == ["a", "b"]


def test_one_device_away_does_not_stop_the_other():
    bench = Bench(devices=("q", "r"))
    bench(DeviceUp("q", False))
    bench.submit("a")
    bench.submit("b", device="r")
    assert bench.started == ["b"]


def test_position_and_backlog():
    bench = Bench(devices=("q", "r"))
    bench.submit("a", "b", "c", expected_s=2.0)
    bench.submit("z", device="r", expected_s=50.0)
    assert [bench.core.ahead(task)[0] for task in ("a", "b", "c", "z")] == [0, 1, 2, 0]
    assert bench.core.backlog_s("q") == 6.0
    bench(TaskFinished("a"))
    assert bench.core.ahead("c")[0] == 1
    assert bench.core.backlog_s("q") == 4.0
    bench(TaskCancelled("b"))
    assert bench.core.ahead("c")[0] == 1, "it is being stopped, and still there"
    bench(TaskFinished("b"))
    assert bench.core.ahead("c")[0] == 0


@given(moves=st.lists(st.tuples(st.booleans(), st.integers(0, 2000), st.integers(0, 10**6)), max_size=100))
def test_a_backlog_counts_what_came_before_whatever_came_and_left(moves):
    backlog, known = Backlog(), {}
    for comes, number, expected_us in moves:
        if comes and number not in known:
            known[number] = expected_us
            backlog.add(number, expected_us)
        elif not comes and known:
            left = sorted(known)[number % len(known)]
            del known[left]
            backlog.remove(left)
        before = [us for other, us in known.items() if other < number]
        assert backlog.before(number) == (len(before), sum(before))
        assert backlog.total_us == sum(known.values())


@pytest.mark.parametrize(
    "event",
    [
        TaskSubmitted(QuantumTask("t", "nowhere")),
        TaskSubmitted(QuantumTask("t", "q", session="closed")),
        SessionRequested("s", "nowhere", QpuHold.WHOLE),
        SessionRequested("s", "q", QpuHold.TASK),
        DeviceUp("nowhere", True),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(event):
    core = QueueCore([DeviceSpec("q")])
    with pytest.raises(InputError):
        core.handle(event)
    assert core.is_idle()


def test_the_same_task_or_session_twice_is_refused():
    bench = Bench()
    bench.submit("t")
    with pytest.raises(InputError, match="twice"):
        bench.submit("t")
    bench.request("s")
    with pytest.raises(InputError, match="cannot be opened"):
        bench.request("s")
