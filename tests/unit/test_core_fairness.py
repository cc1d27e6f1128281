"""The queue of a QPU under anything that may happen: nobody is forgotten, and nobody has too much."""

from __future__ import annotations

import itertools
import os
import random

from hypothesis import given, settings
from hypothesis import strategies as some

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import (
    DeviceUp,
    OpenSession,
    SessionClosed,
    SessionRequested,
    StartTask,
    StopTask,
    TaskCancelled,
    TaskFinished,
    TaskSubmitted,
)
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.task import QuantumTask
from qloom.model import QpuHold
from tests.unit.bench import Bench

EXAMPLES = settings(max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")), deadline=None)


class Referee:
    """A random history of one core, checked after every event against what any user may rely on."""

    def __init__(self, seed: int, shares: int, lanes: int, devices: int) -> None:
        self.random = random.Random(seed)
        self.specs = [DeviceSpec(f"q{number}", shares, lanes) for number in range(devices)]
        self.core = QueueCore(self.specs)
        self.submitted: dict[str, QuantumTask] = {}
        self.wanted: list[str] = []  # submitted, neither cancelled nor closed: must be started in the end
        self.executing: list[str] = []
        self.started: list[str] = []
        self.sessions: dict[str, SessionRequested] = {}
        self.open: list[str] = []
        self.made = 0

    def handle(self, event) -> None:
        for action in self.core.handle(event):
            match action:
                case StartTask(task, device):
                    assert self.submitted[task].device == device
                    assert task not in self.started, "started twice"
                    assert task in self.wanted, "started although nobody wants it"
                    self.started.append(task)
                    self.executing.append(task)
                    self.check_owner(task, device)
                case OpenSession(session):
                    assert session in self.sessions
                    assert session not in self.open
                    self.open.append(session)
                    self.check_opened(session)
                case StopTask(task):
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
            self.submitted[name] = QuantumTask(name, device, session, 1.0)
            self.wanted.append(name)
            self.handle(TaskSubmitted(self.submitted[name]))
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
            self.handle(TaskCancelled(task))
        elif kind == "up":
            self.handle(DeviceUp(device, choose([True, False])))

    def finish(self, task: str) -> None:
        self.executing.remove(task)
        self.handle(TaskFinished(task))

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
