"""A device, its clients and its faults around a queue core: plain events in time, and what each task was promised."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field, replace

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import (
    CountExecution,
    DeviceReleased,
    DeviceUp,
    EndSession,
    EndTask,
    MoveTask,
    OpenSession,
    SessionClosed,
    SessionRequested,
    SharesChanged,
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
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.state import KnownSession
from qloom.broker.queue.task import NOTHING, Counted, Place, QuantumTask
from qloom.errors import Refused
from qloom.model import QpuHold


@dataclass
class Task:
    """A task as its client and the store know it; times called `_at_s` count available seconds only."""

    submitted: QuantumTask  # as it was submitted: a restarted core is given a copy
    queued_us: int
    asked_at_s: float
    bound_s: float | None  # on the whole wait
    state: str = "queued"
    since_us: int = 0
    attempts: int = 0
    head_at_s: float | None = None
    head_bound_s: float | None = None  # on the wait at the head of its session
    stopping: bool = False
    on_device: bool = False
    counted: Counted = NOTHING
    touched: bool = False  # an administrator held or requeued it, so nothing is promised any more
    again: bool = False  # it is to be queued again


@dataclass
class Session:
    """A session as its client and the store know it."""

    requested: SessionRequested
    is_open: bool = False
    turn_us: int = 0
    opened_us: int = 0
    line: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Habits:
    """What happens besides tasks and sessions."""

    close_rate: float = 0.0
    fault_rate: float = 0.2
    whole_rate: float = 0.0
    most_at_once: int = 1  # tasks that a session has queued
    outages: bool = False
    restarts: int = 0
    share_changes: int = 0
    interventions: int = 0  # of an administrator, who holds, releases and requeues tasks
    whole_limits: bool = False  # on holds of the whole device
    elsewhere: bool = False  # tasks from outside may also run on a device that is always away


class Queueing:
    """Runs for a while in time of its own and keeps each wait beside what bounded it."""

    def __init__(self, spec: DeviceSpec, seed: int, habits: Habits) -> None:
        self.spec, self.habits, self.random = spec, habits, random.Random(seed)
        self.away = replace(spec, name="away")
        self.core = QueueCore([spec, self.away])
        self.core.handle(DeviceUp("away", False, away=True))
        self.shares, self.most_shares = spec.shares, spec.shares
        self.now_us, self.available_us, self.up = 0, 0, True
        self.agenda: list[tuple[int, int, tuple[object, ...]]] = []
        self.made = 0
        self.tasks: dict[str, Task] = {}
        self.sessions: dict[str, Session] = {}
        self.head_waits: list[tuple[float, float]] = []  # seconds, bound
        self.waits: list[tuple[float, float]] = []  # whole ones, of tasks whose bound no later change can move
        self.expired: list[Task] = []  # although there was a bound, and the device was there all the time
        self.refused = 0

    @property
    def at_s(self) -> float:
        return self.available_us / 1e6

    def at(self, delay_s: float, *what: object) -> None:
        self.made += 1
        heapq.heappush(self.agenda, (self.now_us + round(delay_s * 1e6), self.made, what))

    def run(self, until_s: float, clients: int, outsiders: int) -> Queueing:
        for _ in range(clients):
            self.at(self.random.random() * 5, "open")
        for _ in range(outsiders):
            self.at(self.random.random() * 5, "outside")
        for begin_s in range(20, round(until_s), 40) if self.habits.outages else ():
            self.at(begin_s, "device", False)
            self.at(begin_s + 7, "device", True)
        for _ in range(self.habits.restarts):
            self.at(self.random.random() * until_s, "restart")
        for _ in range(self.habits.share_changes):
            self.at(self.random.random() * until_s, "shares")
        for _ in range(self.habits.interventions):
            self.at(self.random.random() * until_s, "intervene")
        while self.agenda and self.agenda[0][0] <= until_s * 1e6:
            at_us, _, what = heapq.heappop(self.agenda)
            self.available_us += (at_us - self.now_us) if self.up else 0
            self.now_us = at_us
            self.happen(what)
            if (due_us := self.core.next_deadline_us()) is not None:
                self.at(max(0, due_us - self.now_us) / 1e6, "time")
        return self

    def happen(self, what: tuple[object, ...]) -> None:
        match what:
            case ("open",):
                self.open()
            case ("ask", str(session)) if session in self.sessions:
                if self.random.random() < self.habits.close_rate:
                    self.close(session)
                elif self.sessions[session].is_open or self.random.random() < 0.5:
                    self.submit(session)
            case ("outside",):
                self.submit(None)
                self.at(self.random.expovariate(0.5), "outside")
            case ("let go", str(task), int(attempt)) if self.runs(task, attempt):
                self.tasks[task].on_device = False
                self.tell(DeviceReleased(task))
                self.at(0.5, "end", task, attempt, False)
            case ("end", str(task), int(attempt), bool(fault)) if self.runs(task, attempt):
                self.end(task, fault)
            case ("device", bool(up)):
                self.up = up
                self.tell(DeviceUp("q", up, away=not up))
            case ("time",):
                self.tell(TimePassed())
            case ("shares",):
                self.shares = self.random.randint(1, 6)
                self.most_shares = max(self.most_shares, self.shares)
                self.tell(SharesChanged("q", self.shares))
            case ("restart",):
                self.restart()
            case ("intervene",) if self.tasks:
                self.intervene(self.tasks[self.random.choice(list(self.tasks))])
            case ("release", str(task)) if task in self.tasks and self.tasks[task].state == "held":
                known = self.tasks[task]
                known.state = "queued"
                known.counted = replace(known.counted, uncounted_us=self.now_us - known.queued_us)
                self.in_line(known)
                self.tell(TaskReleased(task))

    # An administrator

    def intervene(self, task: Task) -> None:
        name = task.submitted.id
        if task.state == "queued":
            session = self.sessions.get(task.submitted.session or "")
            if session is not None:
                session.line.remove(name)
            task.state, task.touched = "held", True
            self.tell(TaskHeld(name))
            self.at(5 * self.random.random(), "release", name)
            self.new_head(task.submitted.session)
        elif task.on_device and not task.stopping:
            task.touched = task.again = True
            self.tell(TaskRequeued(name))

    def in_line(self, task: Task) -> None:
        """At the end of the line of its session."""
        session = self.sessions.get(task.submitted.session or "")
        if session is not None:
            session.line.append(task.submitted.id)

    def runs(self, task: str, attempt: int) -> bool:
        known = self.tasks.get(task)
        return known is not None and known.attempts == attempt and known.state == "executing"

    # Sessions

    def open(self) -> None:
        self.made += 1
        hold = QpuHold.WHOLE if self.random.random() < self.habits.whole_rate else QpuHold.SHARE
        limits_s = (2.0, 9.0) if self.habits.whole_limits and hold is QpuHold.WHOLE else (None, None)
        requested = SessionRequested(f"s{self.made}", "q", hold, "", f"s{self.made}", *limits_s)
        self.sessions[requested.session] = Session(requested)
        self.tell(requested)

    def close(self, session: str) -> None:
        self.tell(SessionClosed(session))
        del self.sessions[session]
        self.at(0.5, "open")

    # Tasks

    def submit(self, session: str | None) -> None:
        longest_s = self.spec.longest_s or 1.0
        whole = session is not None and self.sessions[session].requested.hold is QpuHold.WHOLE
        expected_s = self.random.choice([0.01, 0.3, 1.0, 1.0]) * longest_s
        most_s = self.spec.slowest_s
        limit_s = None if whole else self.random.choice([most_s, most_s, longest_s, 0.2 * longest_s])
        self.made += 1
        task = QuantumTask(
            f"t{self.made}", "q", session, expected_s, job=session or "outside", time_limit_s=limit_s,
            set_up=self.random.choice([None, "a", "b"]),
            places=(Place("away", 1.0),) if self.habits.elsewhere and session is None else (),
        )  # fmt: skip
        bound_s = None if session is None else self.core.longest_wait_s("q", session)
        if bound_s is not None and self.random.random() < 0.5:
            task.max_wait_s = bound_s * self.random.choice([0.9, 1.0, 1.0, 1.2])
        self.tasks[task.id] = Task(replace(task), self.now_us, self.at_s, bound_s)
        if session is not None:
            self.sessions[session].line.append(task.id)
        try:
            self.tell(TaskSubmitted(task))
        except Refused:
            self.refused += 1
            del self.tasks[task.id]
            if session is not None:
                self.sessions[session].line.remove(task.id)
                self.at(0.1, "ask", session)
            return
        if session is not None:
            self.new_head(session)
            more = len(self.sessions[session].line) < self.habits.most_at_once
            self.at(self.random.choice([0.0, 0.1, 3.0]) if more else longest_s, "ask", session)
        if self.random.random() < 0.05:
            self.tell(TaskCancelled(task.id))

    def new_head(self, session: str | None) -> None:
        """Note since when the first of a session's line waits for nobody of its session."""
        known = self.sessions.get(session or "")
        if known is None or not known.is_open or not known.line:
            return
        if any(task.on_device and task.submitted.session == session for task in self.tasks.values()):
            return
        head = self.tasks[known.line[0]]
        if head.head_at_s is None and head.attempts == 0 and not head.touched:
            whole = known.requested.hold is QpuHold.WHOLE
            head.head_at_s, head.head_bound_s = self.at_s, 0.0 if whole else self.core.promised_wait_s("q")

    def tell(self, event: object) -> None:
        for action in self.core.handle(event, self.now_us):  # type: ignore[arg-type]
            match action:
                case StartTask(task):
                    self.started(task)
                case StopTask(task):
                    self.stop(self.tasks[task])
                case OpenSession(session):
                    self.sessions[session].is_open, self.sessions[session].opened_us = True, self.now_us
                    self.new_head(session)
                    self.at(self.random.random(), "ask", session)
                case EndTask(task, state):
                    self.ended(self.tasks.pop(task), state)
                case EndSession(session):
                    del self.sessions[session]
                    self.at(0.5, "open")
                case CountExecution(task, ran_us, since_us):
                    known = self.tasks[task]
                    known.counted = replace(known.counted, ran_us=ran_us, runs=since_us is not None)
                    known.since_us = known.since_us if since_us is None else since_us
                case MoveTask(task):
                    raise AssertionError(f"{task} went to a device that is away")

    def started(self, name: str) -> None:
        task = self.tasks[name]
        session = self.sessions.get(task.submitted.session or "")
        if session is not None:
            assert session.line.pop(0) == name, "tasks of a session keep their order"
            session.turn_us = self.now_us
        if task.attempts == 0:
            if task.head_at_s is not None and task.head_bound_s is not None and not task.touched:
                self.head_waits.append((self.at_s - task.head_at_s, task.head_bound_s))
            sure = task.submitted.max_wait_s is not None or not self.habits.share_changes
            if task.bound_s is not None and sure and not task.touched:
                self.waits.append((self.at_s - task.asked_at_s, task.bound_s))
        task.state, task.since_us, task.attempts = "executing", self.now_us, task.attempts + 1
        task.on_device, task.counted = True, replace(task.counted, ran_us=0, runs=True)
        self.core.handle(TaskAdvanced(name, "executing"), self.now_us)
        takes_s = task.submitted.expected_s * self.random.choice([0.5, 1.0, 1.0, 3.0])
        fault = self.random.random() < self.habits.fault_rate
        if not fault and self.random.random() < 0.2:
            self.at(takes_s, "let go", name, task.attempts)
        else:
            self.at(takes_s, "end", name, task.attempts, fault)

    def stop(self, task: Task) -> None:
        """What has run for too long ends at once; what is not wanted any more, perhaps as late as that."""
        limit_s = task.submitted.time_limit_s
        ran_us = task.counted.ran_us + (self.now_us - task.since_us if task.counted.runs else 0)
        left_s = 0.0 if limit_s is None else max(0.0, limit_s - ran_us / 1e6)
        self.at(self.random.choice([0.0, 1.0]) * left_s, "end", task.submitted.id, task.attempts, False)
        task.stopping = True

    def end(self, name: str, fault: bool) -> None:
        task = self.tasks[name]
        session = self.sessions.get(task.submitted.session or "")
        task.on_device = False
        gone = task.submitted.session is not None and session is None
        anew = task.again and task.stopping and not gone
        tries = task.attempts - task.counted.spent
        again = anew or (fault and not task.stopping and tries <= self.spec.retries)
        if anew:
            task.counted = replace(task.counted, spent=task.attempts, uncounted_us=self.now_us - task.queued_us)
            task.stopping = task.again = False
        elif fault and not task.stopping and not again and task.submitted.places:
            self.tell(TaskCancelled(name))  # it would wait for the other device for ever
        if again:
            task.state, task.since_us = "queued", self.now_us
            if session is not None:
                session.line.insert(len(session.line) if anew else 0, name)
        self.tell(TaskFinished(name, ok=not (fault or anew), fault=fault))
        self.new_head(task.submitted.session)

    def ended(self, task: Task, state: str) -> None:
        session = self.sessions.get(task.submitted.session or "")
        if session is not None and task.submitted.id in session.line:
            session.line.remove(task.submitted.id)
        if state == "expired" and task.bound_s is not None and not task.touched:
            away_s = (self.now_us - task.queued_us) / 1e6 - (self.at_s - task.asked_at_s)
            if self.up and away_s < 5e-7:
                self.expired.append(task)
        self.new_head(task.submitted.session)

    # Restarts

    def restart(self) -> None:
        """A new core takes up what the store would tell it."""
        self.core = QueueCore([replace(self.spec, shares=self.shares), self.away])
        sessions = [
            KnownSession(one.requested, one.is_open, one.turn_us, one.opened_us, one.turn_us)
            for one in self.sessions.values()
        ]
        waits = ("queued", "held")
        live = {name: task for name, task in self.tasks.items() if task.on_device or task.state in waits}
        for name in [name for name in self.tasks if name not in live]:
            del self.tasks[name]  # its answer was on the way
        tasks = [
            replace(
                task.submitted,
                state="queued" if task.state == "held" else task.state,
                attempts=task.attempts,
                queued_us=task.queued_us,
                since_us=task.since_us,
                counted=replace(task.counted, held_us=self.now_us if task.state == "held" else None),
            )
            for task in live.values()
        ]
        self.core.restore(sessions, tasks, self.now_us)
        for one in self.sessions.values():  # the store cannot tell apart what came in the same microsecond
            one.line = [task.id for task in sorted(tasks, key=lambda task: task.waits_us) if task.id in one.line]
        for name, task in list(live.items()):
            if task.stopping:
                task.again = task.again and task.submitted.session in (None, *self.sessions)
                self.tell(TaskRequeued(name) if task.again else TaskCancelled(name))
        self.tell(DeviceUp("away", False, away=True))
        self.tell(DeviceUp("q", self.up, away=not self.up))
