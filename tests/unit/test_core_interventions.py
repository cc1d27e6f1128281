"""The queue of a QPU under limits, administrators and outages: pure events in, actions out."""

from __future__ import annotations

import pytest

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import (
    CountExecution,
    DeviceUp,
    EndSession,
    EndTask,
    MoveTask,
    OpenSession,
    SessionClosed,
    SessionRequested,
    StartTask,
    StopTask,
    TaskAdvanced,
    TaskCancelled,
    TaskFinished,
    TaskHeld,
    TaskReleased,
    TaskRequeued,
    TaskSubmitted,
    TimePassed,
)
from qloom.broker.queue.lines import DeviceSpec, shares_for
from qloom.broker.queue.policies import Ledger, Project
from qloom.broker.queue.state import KnownSession
from qloom.broker.queue.task import Counted, Place, QuantumTask
from qloom.errors import InputError, Refused
from qloom.model import QpuHold

S = 1_000_000


def core(*names, **options):
    return QueueCore([DeviceSpec(name, **options) for name in names or ("q",)])


def whole(name, **limits):
    return SessionRequested(name, "q", QpuHold.WHOLE, **limits)


# Whole holds


def test_a_whole_hold_without_a_task_ends():
    queue = core()
    queue.handle(whole("w", idle_limit_s=10.0), 5 * S)
    assert queue.next_deadline_us() == 15 * S
    queue.handle(TaskSubmitted(QuantumTask("t", "q", "w")), 12 * S)
    assert queue.next_deadline_us() is None, "it has something to do"
    queue.handle(TaskSubmitted(QuantumTask("other", "q")), 13 * S)
    queue.handle(TaskFinished("t"), 20 * S)
    assert queue.handle(TimePassed(), 29 * S) == []
    assert queue.handle(TimePassed(), 30 * S) == [
        EndSession("w", "it held the whole device for 10 s without a task"),
        StartTask("other", "q"),
    ]
    assert queue.next_deadline_us() is None


def test_a_whole_hold_ends_after_its_longest_time_in_use_or_not():
    queue = core()
    queue.handle(whole("w", idle_limit_s=10.0, hold_limit_s=60.0), 0)
    queue.handle(TaskSubmitted(QuantumTask("t", "q", "w")), 1 * S)
    queue.handle(TaskSubmitted(QuantumTask("next", "q", "w")), 1 * S)
    assert queue.next_deadline_us() == 60 * S
    why = "it held the whole device for 60 s, the longest that is allowed"
    assert queue.handle(TimePassed(), 60 * S) == [
        EndTask("next", "cancelled", f"its session was closed: {why}"),
        StopTask("t"),
        EndSession("w", why),
    ]


def test_the_limits_of_a_whole_hold_outlive_a_restart():
    queue = core()
    known = KnownSession(whole("w", idle_limit_s=10.0, hold_limit_s=60.0), True, opened_us=5 * S, used_us=8 * S)
    queue.restore([known], [], 9 * S)
    assert queue.next_deadline_us() == 18 * S


def test_whole_holds_that_are_asked_for_again_and_again_let_others_in():
    queue = core()
    queue.handle(whole("w1"))
    for name in ("t1", "t2"):
        queue.handle(TaskSubmitted(QuantumTask(name, "q")))
    queue.handle(whole("w2"))
    queue.handle(whole("w3"))
    assert queue.handle(SessionClosed("w1")) == [StartTask("t1", "q")]
    assert queue.handle(TaskFinished("t1")) == [EndTask("t1", "done"), OpenSession("w2")]
    assert queue.handle(SessionClosed("w2")) == [StartTask("t2", "q")]
    assert queue.handle(TaskFinished("t2")) == [EndTask("t2", "done"), OpenSession("w3")]
    queue.handle(whole("w4"))
    assert queue.handle(SessionClosed("w3")) == [OpenSession("w4")], "nobody else waits"


def test_projects_have_so_many_whole_holds_and_such_a_priority():
    ledger = Ledger({"p": Project("p", max_whole=1, max_priority=3)})
    queue = QueueCore([DeviceSpec("q")], ledger)
    queue.handle(SessionRequested("w", "q", QpuHold.WHOLE, "p"))
    with pytest.raises(Refused, match="may hold 1 whole devices at once"):
        queue.handle(SessionRequested("x", "q", QpuHold.WHOLE, "p"))
    queue.handle(SessionClosed("w"))
    queue.handle(SessionRequested("x", "q", QpuHold.WHOLE, "p"))
    ledger.require_priority("p", 3)
    with pytest.raises(Refused, match="a priority of 3 at most, not 4"):
        ledger.require_priority("p", 4)


# Held and queued again


def test_a_held_task_waits_until_it_is_released():
    queue = core()
    for name in ("t1", "t2", "t3"):
        queue.handle(TaskSubmitted(QuantumTask(name, "q", expected_s=2.0, max_wait_s=100.0)), 0)
    queue.handle(TaskHeld("t2"), 10 * S)
    queue.handle(TaskHeld("t2"), 11 * S)
    assert queue.backlog_s("q") == 4.0
    assert queue.ahead("t3")[0] == 1
    assert queue.handle(TaskFinished("t1"), 20 * S)[1:] == [StartTask("t3", "q")]
    assert queue.next_deadline_us() is None, "it does not expire meanwhile"
    assert queue.handle(TaskReleased("t2"), 210 * S) == []
    assert queue.next_deadline_us() == 310 * S + 1, "its wait begins again"
    assert queue.handle(TaskFinished("t3"), 211 * S)[1:] == [StartTask("t2", "q")]
    with pytest.raises(Refused, match="t2 is on QPU q"):
        queue.handle(TaskHeld("t2"), 212 * S)


def test_a_held_task_goes_with_its_session_and_when_it_is_cancelled():
    queue = core()
    queue.handle(SessionRequested("s", "q", QpuHold.SHARE))
    queue.handle(DeviceUp("q", False))
    for name in ("a", "b", "c"):
        queue.handle(TaskSubmitted(QuantumTask(name, "q", "s")))
    queue.handle(TaskHeld("a"))
    queue.handle(TaskHeld("b"))
    assert queue.handle(TaskCancelled("b", "not wanted")) == [EndTask("b", "cancelled", "not wanted")]
    assert queue.handle(DeviceUp("q", True)) == [StartTask("c", "q")], "the others of its session go on"
    assert queue.handle(SessionClosed("s")) == [EndTask("a", "cancelled", "its session was closed"), StopTask("c")]
    queue.handle(TaskFinished("c", ok=False))
    assert queue.is_idle()


def test_a_task_is_queued_again_as_if_it_had_just_come():
    queue = core(retries=1)
    queue.handle(TaskSubmitted(QuantumTask("t", "q", max_wait_s=10.0)), 0)
    queue.handle(TaskSubmitted(QuantumTask("u", "q")), 0)
    queue.handle(TaskAdvanced("t", "executing"), 0)
    with pytest.raises(Refused, match="u is queued already"):
        queue.handle(TaskRequeued("u"), 1 * S)
    assert queue.handle(TaskRequeued("t"), 20 * S) == [StopTask("t")]
    assert queue.handle(TaskRequeued("t"), 20 * S) == []
    assert queue.handle(TaskFinished("t", ok=False), 21 * S) == [StartTask("u", "q")], "behind what has waited"
    assert queue.next_deadline_us() == 31 * S + 1
    assert queue.handle(TaskFinished("u"), 22 * S)[1:] == [StartTask("t", "q")]
    assert queue.handle(TaskFinished("t", fault=True), 23 * S) == [StartTask("t", "q")], "its attempts begin again"
    assert queue.handle(TaskFinished("t", fault=True), 24 * S) == [EndTask("t", "failed", "the device failed")]


def test_a_task_that_was_done_before_it_could_be_taken_back_is_done():
    queue = core()
    queue.handle(TaskSubmitted(QuantumTask("t", "q")))
    queue.handle(TaskRequeued("t"))
    assert queue.handle(TaskFinished("t")) == [EndTask("t", "done")]


# Devices that are away


def test_execution_does_not_count_while_the_device_is_away():
    queue = core(longest_s=10.0)
    queue.handle(TaskSubmitted(QuantumTask("t", "q", time_limit_s=10.0)), 0)
    queue.handle(TaskAdvanced("t", "executing"), 1 * S)
    assert queue.handle(DeviceUp("q", False, away=True), 5 * S) == [CountExecution("t", 4 * S, None)]
    assert queue.next_deadline_us() is None
    assert queue.handle(TimePassed(), 500 * S) == []
    assert queue.executed_s("t", 500 * S) == 4.0
    assert queue.handle(DeviceUp("q", True), 600 * S) == [CountExecution("t", 4 * S, 600 * S)]
    assert queue.next_deadline_us() == 606 * S
    assert queue.handle(TimePassed(), 606 * S) == [StopTask("t")]


def test_execution_counts_on_a_device_that_is_drained():
    queue = core(longest_s=10.0)
    queue.handle(TaskSubmitted(QuantumTask("t", "q", time_limit_s=10.0)), 0)
    queue.handle(TaskAdvanced("t", "executing"), 0)
    assert queue.handle(DeviceUp("q", False), 5 * S) == []
    assert queue.handle(TimePassed(), 10 * S) == [StopTask("t")]


def test_a_device_that_was_away_before_a_restart_counts_from_its_return():
    queue = core(longest_s=10.0)
    counted = Counted(ran_us=4 * S, runs=False)
    task = QuantumTask("t", "q", time_limit_s=10.0, state="executing", attempts=1, counted=counted)
    queue.restore([], [task], 100 * S)
    assert queue.next_deadline_us() is None
    assert queue.handle(DeviceUp("q", True), 200 * S) == [CountExecution("t", 4 * S, 200 * S)]
    assert queue.next_deadline_us() == 206 * S


# Other devices


def somewhere(name, *places, **more):
    return TaskSubmitted(
        QuantumTask(name, "q", places=tuple(Place(place, 3.0, 30.0) for place in places), expected_s=1.0, **more)
    )


def test_a_task_that_names_several_devices_leaves_one_that_is_away():
    queue = core("q", "r")
    queue.handle(TaskSubmitted(QuantumTask("first", "q")))
    queue.handle(somewhere("t", "r", project="p"))
    queue.handle(TaskSubmitted(QuantumTask("only here", "q")))
    assert queue.ledger.reserved_s["p"] == 3.0, "as long as it may take anywhere"
    moved, start = queue.handle(DeviceUp("q", False, away=True))
    assert start == StartTask("t", "r")
    assert isinstance(moved, MoveTask)
    assert (moved.place.device, moved.place.time_limit_s) == ("r", 30.0)
    assert [place.device for place in moved.places] == ["q"], "it may come back"
    assert queue.backlog_s("r") == 3.0
    queue.handle(TaskFinished("t"))
    assert (queue.backlog_s("r"), queue.ledger.reserved_s["p"]) == (0.0, 0.0)


def test_a_task_goes_to_the_first_of_its_devices_that_comes_back():
    queue = core("q", "r", "s")
    for name in ("q", "r", "s"):
        queue.handle(DeviceUp(name, False))
    queue.handle(somewhere("t", "r", "s"))
    queue.handle(TaskHeld("t"))
    assert queue.handle(DeviceUp("s", True)) == [], "it is held"
    moved, start = queue.handle(TaskReleased("t"))
    assert (moved.place.device, start) == ("s", StartTask("t", "s"))


def test_a_device_that_fails_a_task_hands_it_on_for_good():
    queue = core("q", "r", retries=1)
    queue.handle(somewhere("t", "r"))
    assert queue.handle(TaskFinished("t", fault=True)) == [StartTask("t", "q")]
    moved, start = queue.handle(TaskFinished("t", fault=True))
    assert (moved.place.device, moved.places, start) == ("r", (), StartTask("t", "r"))
    assert queue.handle(TaskFinished("t", fault=True)) == [StartTask("t", "r")], "with all its attempts there"
    assert queue.handle(TaskFinished("t", fault=True)) == [EndTask("t", "failed", "the device failed")]
    assert queue.is_idle()


# What can be promised


def test_nothing_is_promised_where_a_task_cannot_be_limited():
    spec = DeviceSpec("q", longest_s=10.0, bounded=False)
    assert spec.promised_wait_s() is None
    with pytest.raises(InputError, match="its vendor queues tasks, or does not stop them"):
        shares_for(spec, 100.0)
    queue = QueueCore([spec])
    queue.handle(SessionRequested("s", "q", QpuHold.SHARE))
    queue.handle(TaskSubmitted(QuantumTask("t", "q", "s", 1.0, max_wait_s=5.0)))
    assert queue.longest_wait_s("q", "s") is None
    queue.handle(SessionClosed("s"))
    queue.handle(TaskFinished("t"))
    queue.handle(whole("w"))
    assert queue.longest_wait_s("q", "w") is None
