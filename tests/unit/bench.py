"""A queue core on the bench."""

from __future__ import annotations

from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import OpenSession, SessionRequested, StartTask, StopTask, TaskFinished, TaskSubmitted
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.queue.task import QuantumTask
from qloom.model import QpuHold


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
                case StartTask(task, _device):
                    self.started.append(task)
                case OpenSession(session):
                    self.opened.append(session)
                case StopTask(task):
                    self.stopped.append(task)
        return self

    def submit(self, *tasks, session=None, device="q", expected_s=0.0):
        for task in tasks:
            self(TaskSubmitted(QuantumTask(task, device, session, expected_s)))

    def request(self, session, hold=QpuHold.SHARE, device="q"):
        self(SessionRequested(session, device, hold))

    def finish_all(self):
        """Finish what executes, in the order it was started, until nothing is left to finish."""
        done = 0
        while done < len(self.started):
            self(TaskFinished(self.started[done]))
            done += 1
        return self.started
