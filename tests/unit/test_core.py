"""The queue of a QPU: who is started, in which order, and that nobody is forgotten."""

from __future__ import annotations

import itertools
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from qloom.broker.core import QueueCore
from qloom.broker.events import (
    Cancelled,
    DeviceUp,
    Finished,
    SessionClosed,
    SessionOpened,
    SessionRequested,
    Start,
    Stop,
    Submitted,
)
from qloom.broker.promise import DeviceSpec
from qloom.errors import InputError
from qloom.model import QpuHold

EXAMPLES = settings(max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")), deadline=None)


class Bench:
    """Feeds events to a core and keeps what it said."""

    def __init__(self, *, shares=8, lanes=1, devices=("q",)):
        self.core = QueueCore([DeviceSpec(name, shares, lanes) for name in devices])
        self.started: list[str] = []
        self.opened: list[str] = []
        self.stopped: list[str] = []

    def __call__(self, event):
        for action in self.core.handle(event):
            match action:
                case Start(task, _device):
                    self.started.append(task)
                case SessionOpened(session):
                    self.opened.append(session)
                case Stop(task):
                    self.stopped.append(task)
        return self

    def submit(self, *tasks, session=None, device="q", expected_s=0.0):
        for task in tasks:
            self(Submitted(task, device, session, expected_s))

    def request(self, session, hold=QpuHold.SHARE, device="q"):
        self(SessionRequested(session, device, hold))

    def finish_all(self):
        """Finish what executes, in the order it was started, until nothing is left to finish."""
        done = 0
        while done < len(self.started):
            self(Finished(self.started[done]))
            done += 1
        return self.started


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
    bench(Finished("b"))
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
    bench(Finished("before"))
    assert bench.opened == ["own"]
    assert bench.started == ["before"]
    bench.submit("o1", "o2", "o3", session="own")
    assert bench.started == ["before", "o1", "o2"], "the owner has all lanes"
    bench(Finished("o1"))
    bench(Finished("o2"))
    bench(Finished("o3"))
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
    bench(Cancelled("b"))
    assert bench.stopped == []
    assert bench.finish_all() == ["a", "c"]
    assert bench.core.is_idle()


def test_an_executing_task_that_is_cancelled_is_stopped_and_keeps_its_lane_until_it_has():
    bench = Bench()
    bench.submit("a", "b")
    bench(Cancelled("a"))
    assert bench.stopped == ["a"]
    assert bench.started == ["a"]
    bench(Finished("a"))
    assert bench.started == ["a", "b"]


def test_cancelling_the_only_task_of_a_session_gives_its_turn_up():
    bench = Bench()
    bench.request("s")
    bench.submit("x")
    bench.submit("s1", session="s")
    bench(Cancelled("s1"))
    bench.submit("y")
    assert bench.finish_all() == ["x", "y"]
    bench.submit("s2", session="s")
    assert bench.started[-1] == "s2"


def test_cancelling_what_is_not_known_does_nothing():
    assert Bench().core.handle(Cancelled("never")) == []
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
    bench(Finished("a"))
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
    bench(Finished("a"))
    assert bench.core.ahead("c")[0] == 1
    assert bench.core.backlog_s("q") == 4.0
    bench(Cancelled("b"))
    assert bench.core.ahead("c")[0] == 1, "it is being stopped, and still there"
    bench(Finished("b"))
    assert bench.core.ahead("c")[0] == 0


@pytest.mark.parametrize(
    "event",
    [
        Submitted("t", "nowhere"),
        Submitted("t", "q", session="closed"),
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


class Referee:
    """A random history of one core, checked after every event against what any user may rely on."""

    def __init__(self, seed: int, shares: int, lanes: int, devices: int) -> None:
        self.random = random.Random(seed)
        self.specs = [DeviceSpec(f"q{number}", shares, lanes) for number in range(devices)]
        self.core = QueueCore(self.specs)
        self.submitted: dict[str, Submitted] = {}
        self.wanted: list[str] = []  # submitted, neither cancelled nor closed: must be started in the end
        self.executing: list[str] = []
        self.started: list[str] = []
        self.sessions: dict[str, SessionRequested] = {}
        self.open: list[str] = []
        self.made = 0

    def handle(self, event) -> None:
        for action in self.core.handle(event):
            match action:
                case Start(task, device):
                    assert self.submitted[task].device == device
                    assert task not in self.started, "started twice"
                    assert task in self.wanted, "started although nobody wants it"
                    self.started.append(task)
                    self.executing.append(task)
                    self.check_owner(task, device)
                case SessionOpened(session):
                    assert session in self.sessions
                    assert session not in self.open
                    self.open.append(session)
                    self.check_opened(session)
                case Stop(task):
                    assert task in self.executing
        self.check_numbers()

    def owners(self, device: str) -> list[str]:
        return self.of(device, QpuHold.WHOLE)

    def of(self, device: str, hold: QpuHold) -> list[str]:
        opened = [self.sessions[session] for session in self.open]
        return [session.session for session in opened if session.device == device and session.hold is hold]

    def check_owner(self, task: str, device: str) -> None:
        session = self.submitted[task].session
        assert session is None or session in self.open, "a session's task ran before the session was opened"
        for owner in self.owners(device):
            assert session == owner, "somebody else's task was started on a device that is held whole"

    def check_opened(self, session: str) -> None:
        asked = self.sessions[session]
        if asked.hold is QpuHold.WHOLE:
            there = [task for task in self.executing if self.submitted[task].device == asked.device]
            assert there == [], "a whole device was handed over while it executed something"

    def check_numbers(self) -> None:
        for spec in self.specs:
            there = [task for task in self.executing if self.submitted[task].device == spec.name]
            assert len(there) <= spec.lanes
            assert len(self.owners(spec.name)) <= 1, "two owners"
            assert len(self.of(spec.name, QpuHold.SHARE)) <= spec.shares

    def step(self) -> None:
        choose = self.random.choice
        device = choose(self.specs).name
        kind = choose(["submit", "submit", "submit", "finish", "finish", "request", "close", "cancel", "up"])
        self.made += 1
        name = f"{kind}{self.made}"
        if kind == "submit":
            session = choose([None, *(s for s, asked in self.sessions.items() if asked.device == device)])
            self.submitted[name] = Submitted(name, device, session, 1.0)
            self.wanted.append(name)
            self.handle(self.submitted[name])
        elif kind == "request" and len(self.sessions) < 6:
            self.sessions[name] = SessionRequested(name, device, choose([QpuHold.SHARE, QpuHold.WHOLE]))
            self.handle(self.sessions[name])
        elif kind == "finish" and self.executing:
            self.finish(choose(self.executing))
        elif kind == "close" and self.sessions:
            self.close(choose(list(self.sessions)))
        elif kind == "cancel" and self.wanted:
            task = choose(self.wanted)
            if task not in self.started:
                self.wanted.remove(task)
            self.handle(Cancelled(task))
        elif kind == "up":
            self.handle(DeviceUp(device, choose([True, False])))

    def finish(self, task: str) -> None:
        self.executing.remove(task)
        self.handle(Finished(task))

    def close(self, session: str) -> None:
        del self.sessions[session]
        if session in self.open:
            self.open.remove(session)
        gone = [t for t in self.wanted if self.submitted[t].session == session and t not in self.started]
        self.wanted = [task for task in self.wanted if task not in gone]
        self.handle(SessionClosed(session))

    def wind_up(self) -> None:
        """Everything that executes ends, every session is closed once its own work is done."""
        for spec in self.specs:
            self.handle(DeviceUp(spec.name, True))
        for _ in range(10_000):
            if self.executing:
                self.finish(self.executing[0])
                continue
            waiting = [self.submitted[task].session for task in self.wanted if task not in self.started]
            idle = [session for session in self.open if session not in waiting]
            if not idle:
                break
            self.close(idle[0])


@EXAMPLES
@given(
    seed=some.integers(0, 2**32),
    steps=some.integers(1, 120),
    shares=some.integers(1, 3),
    lanes=some.integers(1, 3),
    devices=some.integers(1, 2),
)
def test_whatever_happens_nobody_is_forgotten_and_nobody_has_too_much(seed, steps, shares, lanes, devices):
    referee = Referee(seed, shares, lanes, devices)
    for _ in range(steps):
        referee.step()
    referee.wind_up()
    never = [task for task in referee.wanted if task not in referee.started]
    assert never == [], "everything finished, and these were never started"
    assert referee.executing == []
    for session in list(referee.sessions):  # those that were opened last and had nothing to do
        referee.close(session)
    assert referee.core.is_idle()
    assert all(referee.core.backlog_s(spec.name) == 0 for spec in referee.specs)


@EXAMPLES
@given(
    seed=some.integers(0, 2**32),
    sessions=some.integers(1, 5),
    each=some.integers(1, 6),
)
def test_the_wait_of_a_share_is_bounded_by_the_other_shares(seed, sessions, each):
    """Between two tasks of a session that has more to do, every other session runs at most once."""
    rng = random.Random(seed)
    bench = Bench(shares=sessions)
    names = [f"s{number}" for number in range(sessions)]
    for name in names:
        bench.request(name)
    work = [(name, number) for name in names for number in range(each)]
    rng.shuffle(work)
    for name, number in work:
        bench.submit(f"{name}:{number}", session=name)
    order = [task.split(":")[0] for task in bench.finish_all()]
    assert len(order) == sessions * each
    for name in names:
        turns = [place for place, other in enumerate(order) if other == name]
        for one, following in itertools.pairwise(turns):
            between = order[one + 1 : following]
            assert len(between) == len(set(between)), order
