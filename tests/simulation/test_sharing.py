"""Sharing one device: weighted fair shares, nobody starved, and agreement with the closed-queue formula."""

from __future__ import annotations

import heapq
import random

import pytest

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import (
    EndTask,
    OpenSession,
    SessionRequested,
    StartTask,
    TaskAdvanced,
    TaskFinished,
    TaskSubmitted,
)
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.policies import Ledger, Project
from qloom.broker.queue.task import QuantumTask
from qloom.model import QpuHold


class Bench:
    """One device that executes what the core starts; `on_end` decides what its owner does next."""

    def __init__(self, spec, ledger=None):
        self.core = QueueCore([spec], ledger)
        self.now_us = 0
        self.agenda = []
        self.number = 0
        self.started_us = {}
        self.queued_us = {}
        self.seconds = {}
        self.waits_s = []
        self.busy_s = {}
        self.on_end = lambda owner: None
        self.on_open = lambda session: None

    def at(self, delay_s, what, *arguments):
        self.number += 1
        heapq.heappush(self.agenda, (self.now_us + round(delay_s * 1e6), self.number, what, arguments))

    def submit(self, owner, seconds, session=None):
        self.number += 1
        task = f"{owner}/{self.number}"
        self.queued_us[task] = self.now_us

        self.seconds[task] = seconds
        self.tell(TaskSubmitted(QuantumTask(task, "q", session, seconds, project=owner, job=owner)))

    def tell(self, event):
        for action in self.core.handle(event, self.now_us):
            match action:
                case StartTask(task):
                    self.core.handle(TaskAdvanced(task, "executing"), self.now_us)
                    self.waits_s.append((self.now_us - self.queued_us.pop(task)) / 1e6)
                    self.at(self.seconds[task], self.finish, task)
                case EndTask(task):
                    owner = task.split("/")[0]
                    self.busy_s[owner] = self.busy_s.get(owner, 0.0) + self.seconds.pop(task)
                    self.on_end(owner)
                case OpenSession(session):
                    self.on_open(session)

    def finish(self, task):
        self.tell(TaskFinished(task))

    def run(self, tasks):
        while len(self.waits_s) < tasks:
            self.now_us, _, what, arguments = heapq.heappop(self.agenda)
            what(*arguments)


def test_projects_with_weights_three_to_one_get_three_quarters_and_one():
    seeded = random.Random(7)
    ledger = Ledger({"a": Project("a", weight=3.0), "b": Project("b", weight=1.0)})
    bench = Bench(DeviceSpec("q", policy="fair"), ledger)
    bench.on_end = lambda owner: bench.submit(owner, seeded.expovariate(1.0))
    for owner in "aabb":
        bench.submit(owner, 1.0)
    bench.run(10_000)
    share = bench.busy_s["a"] / sum(bench.busy_s.values())
    assert share == pytest.approx(0.75, abs=0.02)


def test_a_project_that_comes_late_is_served_at_once_and_takes_nothing_back():
    ledger = Ledger({name: Project(name) for name in "abc"})
    bench = Bench(DeviceSpec("q", policy="fair"), ledger)
    bench.on_end = lambda owner: bench.submit(owner, 1.0)
    for owner in "aabb":
        bench.submit(owner, 1.0)
    bench.run(1000)
    before = dict(bench.busy_s)
    bench.submit("c", 1.0)
    bench.submit("c", 1.0)
    bench.run(1300)
    gained = {name: bench.busy_s[name] - before.get(name, 0.0) for name in "abc"}
    assert gained["c"] == pytest.approx(100, rel=0.05)
    assert gained["a"] == pytest.approx(100, rel=0.05)


def test_low_priority_is_not_starved():
    bench = Bench(DeviceSpec("q", policy="priority"))
    done = []
    bench.on_end = lambda owner: (done.append(owner), owner == "high" and submit_high())

    def submit_high():
        bench.number += 1
        task = f"high/{bench.number}"
        bench.queued_us[task], bench.seconds[task] = bench.now_us, 10.0
        bench.tell(TaskSubmitted(QuantumTask(task, "q", None, 10.0, project="high", job="high", priority=3)))

    bench.submit("low", 10.0)  # runs at once
    bench.submit("low", 10.0)
    submit_high()
    submit_high()
    bench.run(400)
    assert done.count("low") == 2, "ageing lifts it past the others in the end"
    assert done.index("low", 1) > 100, "but not before it has waited for it"


@pytest.mark.parametrize("sessions", [2, *(pytest.param(many, marks=pytest.mark.slow) for many in (8, 32))])
def test_utilisation_and_wait_agree_with_mean_value_analysis(sessions):
    """Closed queue, exponential service S = 10 and pauses Z = 300: R = S(1 + Q), X = n / (R + Z), Q = X R."""
    service_s, pause_s, tasks = 10.0, 300.0, 60_000
    seeded = random.Random(sessions)
    bench = Bench(DeviceSpec("q", shares=sessions))

    def ask(session):
        bench.submit(session, seeded.expovariate(1 / service_s), session)

    bench.on_open = bench.on_end = lambda session: bench.at(seeded.expovariate(1 / pause_s), ask, session)
    for number in range(sessions):
        bench.tell(SessionRequested(f"s{number}", "q", QpuHold.SHARE, job=f"s{number}"))
    bench.run(tasks)
    queue = 0.0
    for n in range(1, sessions + 1):
        response_s = service_s * (1 + queue)
        rate = n / (response_s + pause_s)
        queue = rate * response_s
    utilisation = sum(bench.busy_s.values()) / (bench.now_us / 1e6)
    wait_s = sum(bench.waits_s) / len(bench.waits_s)
    assert utilisation == pytest.approx(rate * service_s, rel=0.03)
    assert wait_s == pytest.approx(response_s - service_s, rel=0.03, abs=0.05)
