"""The bound on waiting: over random workloads, no task of a session waits longer than was promised."""

from __future__ import annotations

import heapq
import os
import random
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as some

from qloom.broker.core import QueueCore
from qloom.broker.events import (
    Advanced,
    DeviceUp,
    Ended,
    Finished,
    SessionClosed,
    SessionOpened,
    SessionRequested,
    Start,
    Stop,
    Submitted,
)
from qloom.broker.promise import DeviceSpec, shares_for
from qloom.model import QpuHold

SETTINGS = settings(
    max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")) * 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)


@dataclass
class World:
    """A device, its clients and its faults, as plain events in time; counts available seconds only."""

    spec: DeviceSpec
    random: random.Random
    now_us: int = 0
    agenda: list[tuple[int, int, object]] = field(default_factory=list)
    number: int = 0
    up: bool = True
    available_us: int = 0
    head_since_us: dict[str, int] = field(default_factory=dict)  # session -> available time when it asked
    waits_s: list[float] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.core = QueueCore([self.spec])
        self.running: dict[str, float] = {}

    def at(self, delay_s: float, what: object) -> None:
        self.number += 1
        heapq.heappush(self.agenda, (self.now_us + round(delay_s * 1e6), self.number, what))

    def tell(self, event: object) -> None:
        for action in self.core.handle(event, self.now_us):  # type: ignore[arg-type]
            match action:
                case Start(task):
                    self.core.handle(Advanced(task, "executing"), self.now_us)
                    self.started(task)
                case Stop(task):
                    self.at(0, ("end", task, False))
                case SessionOpened(session):
                    self.at(self.random.random(), ("ask", session))
                case Ended(task, state):
                    self.ended[task] = state
                    session = task.split("/")[0]
                    if session.startswith("s"):
                        self.head_since_us.pop(session, None)
                        self.at(self.random.choice([0.0, 0.1, 3.0]), ("ask", session))

    def started(self, task: str) -> None:
        session = task.split("/")[0]
        if (since_us := self.head_since_us.pop(session, None)) is not None:
            self.waits_s.append((self.available_us - since_us) / 1e6)
        self.running[task] = self.now_us
        self.at(self.seconds(task), ("end", task, self.random.random() < 0.2))

    def seconds(self, task: str) -> float:
        return float(task.rsplit(":", 1)[1])

    def submit(self, owner: str, session: str | None) -> None:
        longest_s = self.spec.longest_s or 1.0
        seconds = self.random.choice([0.01, 0.3, 1.0]) * longest_s
        self.number += 1
        task = f"{owner}/{self.number}:{seconds}"
        if session is not None:
            self.head_since_us[session] = self.available_us
        set_up = self.random.choice([None, "a", "b"])
        self.tell(Submitted(task, self.spec.name, session, seconds, project=owner, job=owner, set_up=set_up))

    def run(self, until_s: float, close_rate: float) -> None:
        while self.agenda and self.agenda[0][0] <= until_s * 1e6:
            at_us, _, what = heapq.heappop(self.agenda)
            if self.up:
                self.available_us += at_us - self.now_us
            self.now_us = at_us
            match what:
                case ("ask", session) if session in self.core._sessions:
                    if self.random.random() < close_rate:
                        self.tell(SessionClosed(session))
                        self.at(0.5, ("open", f"s{self.number}"))
                    else:
                        self.submit(session, session)
                case ("open", session):
                    self.tell(SessionRequested(session, self.spec.name, QpuHold.SHARE, job=session))
                case ("outside", name):
                    self.submit(name, None)
                    self.at(self.random.expovariate(1.0), ("outside", name))
                case ("end", task, fault) if task in self.running:
                    began_us = self.running.pop(task)
                    if self.now_us - began_us >= 0:
                        self.tell(Finished(task, ok=not fault, fault=fault))
                case ("device", up):
                    self.up = up
                    self.tell(DeviceUp(self.spec.name, up))


def simulate(spec: DeviceSpec, seed: int, clients: int, outsiders: int, close_rate: float) -> World:
    world = World(spec, random.Random(seed))
    for client in range(clients):
        world.at(world.random.random() * 5, ("open", f"s{client}c"))
    for outsider in range(outsiders):
        world.at(world.random.random() * 5, ("outside", f"o{outsider}"))
    for window in range(3):
        world.at(20 + 40 * window, ("device", False))
        world.at(27 + 40 * window, ("device", True))
    world.run(until_s=120, close_rate=close_rate)
    return world


@SETTINGS
@given(
    seed=some.integers(0, 10**6),
    shares=some.integers(1, 6),
    clients=some.integers(1, 9),
    outsiders=some.integers(0, 4),
    limit=some.integers(0, 3),
    retries=some.integers(0, 2),
    lanes=some.integers(1, 2),
    longest_s=some.sampled_from([0.5, 2.0, 5.0]),
    close_rate=some.sampled_from([0.0, 0.1]),
)
def test_no_task_of_a_session_waits_longer_than_promised(
    seed, shares, clients, outsiders, limit, retries, lanes, longest_s, close_rate
):
    note(f"seed {seed}")
    spec = DeviceSpec("q", shares, lanes, "fifo", outside_limit=limit, longest_s=longest_s, retries=retries)
    world = simulate(spec, seed, clients, outsiders, close_rate)
    promised_s = spec.promised_wait_s()
    assert promised_s is not None
    assert max(world.waits_s, default=0.0) <= promised_s + 1e-6


def test_the_promise_is_not_idle():
    """Somebody does come near the bound, so the property above says something."""
    spec = DeviceSpec("q", 4, 1, "fifo", outside_limit=1, longest_s=2.0)
    worst_s = max(max(simulate(spec, seed, 8, 2, 0.0).waits_s) for seed in range(200))
    assert worst_s > 0.75 * spec.promised_wait_s()


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
    except Exception:
        assert spec.promised_wait_s(1) > wait_s - 1e-6
        return
    assert spec.promised_wait_s(shares) <= wait_s + 1e-6
    assert spec.promised_wait_s(shares + 1) > wait_s - 1e-6
