"""In which order tasks run, and what each project may use and has used: pure rules over those who could run next.

`fifo` can promise a bound on waiting; `fair` and `priority` cannot, and say so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.queue.task import QuantumTask
from qloom.errors import InputError, Refused
from qloom.model import plain_value


@plain_value
class Candidate:
    """A task that could run next: the head of a session, or one from outside."""

    task: str
    order: int  # when it became one
    project: str
    priority: int
    waited_s: float


@dataclass
class Usage:
    """QPU-seconds of each project, the older the lighter, divided by the project's weight.

    A project that comes back after a pause starts level with those that are busy: it neither pays for the past
    nor may it catch up on time that it did not want.
    """

    weights: dict[str, float] = field(default_factory=dict)
    half_life_s: float = 7 * 86400.0
    seconds: dict[str, float] = field(default_factory=dict)
    as_of_us: int = 0

    def charge(self, project: str, seconds: float, now_us: int) -> None:
        """Add to what a project has used."""
        self._decay(now_us)
        weighted = seconds / self.weights.get(project, 1.0)
        self.seconds[project] = self.seconds.get(project, 0.0) + weighted

    def begin(self, project: str, busy: list[str], now_us: int) -> None:
        """A project has something to do again."""
        self._decay(now_us)
        if others := [self.seconds.get(other, 0.0) for other in busy if other != project]:
            self.seconds[project] = max(self.seconds.get(project, 0.0), min(others))

    def as_dict(self) -> dict[str, Any]:
        """Return the form that is kept in the store."""
        return {"seconds": self.seconds, "as_of_us": self.as_of_us}

    def of(self, project: str) -> float:
        """Return the weighted seconds."""
        return self.seconds.get(project, 0.0)

    def _decay(self, now_us: int) -> None:
        factor = 0.5 ** ((now_us - self.as_of_us) / 1e6 / self.half_life_s)
        self.as_of_us = now_us
        for project in self.seconds:
            self.seconds[project] *= factor


Ordering = Callable[[Candidate, Usage], tuple[float, ...]]
AGEING_S = 600.0  # ten minutes of waiting weigh as much as one step of priority

POLICIES: dict[str, Ordering] = {
    "fifo": lambda candidate, usage: (candidate.order,),
    "fair": lambda candidate, usage: (usage.of(candidate.project), candidate.order),
    "priority": lambda candidate, usage: (-candidate.priority - candidate.waited_s / AGEING_S, candidate.order),
}
GROUPS: dict[str, Callable[[QuantumTask], Hashable]] = {  # of each group, the one that came first goes first
    "fifo": lambda task: None,
    "fair": lambda task: task.project,
    "priority": lambda task: task.priority,
}
CAN_PROMISE = ("fifo",)


def policy(name: str) -> Ordering:
    """The policy of that name."""
    try:
        return POLICIES[name]
    except KeyError:
        raise InputError(f"no policy is called {name!r}", hint=f"choose one of {', '.join(POLICIES)}") from None


def group(policy: str, task: QuantumTask) -> Hashable:
    """Tasks of one group keep the order they came in, so that only the first of it can be the next of all."""
    return GROUPS[policy](task)


@dataclass(frozen=True)
class Project:
    """What a project may use; None is without limit."""

    name: str
    weight: float = 1.0
    budget_s: float | None = None
    max_tasks: int | None = None  # queued or running at once
    max_sessions: int | None = None
    max_whole: int | None = None  # sessions for a whole device, waiting or open at once
    max_priority: int | None = None
    whole_idle_s: float | None = None  # a hold of a whole device ends after so long without a task
    whole_hold_s: float | None = None  # and after so long in any case


@dataclass
class Ledger:
    """The books. Seconds of tasks that are not done yet are reserved, so that a budget cannot be overdrawn."""

    projects: dict[str, Project] = field(default_factory=dict)
    max_jobs: int | None = None  # hybrid jobs with a session or a task at once, over all projects
    used_s: dict[str, float] = field(default_factory=dict)
    reserved_s: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    wholes: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.know(self.projects.values())

    def know(self, projects: Iterable[Project]) -> None:
        """These are the projects from now on; what they have used stays as it is."""
        self.projects = {project.name: project for project in projects}
        self.usage.weights = {project.name: project.weight for project in self.projects.values()}

    def project(self, name: str) -> Project:
        """What a project may use."""
        return self.projects.get(name) or _without_limits(name)

    def require_priority(self, project: str, priority: int) -> None:
        """Refuse a priority that a project may not give its tasks."""
        most = self.project(project).max_priority
        if most is not None and priority > most:
            raise Refused(
                f"project {project} may give its tasks a priority of {most} at most, not {priority}",
                hint="ask an administrator for a higher max_priority",
            )

    def admit_task(self, project: str, job: str, expected_s: float, now_us: int) -> None:
        """Refuse a task that its project may not have, or reserve its seconds."""
        known = self.project(project)
        count = self.tasks.get(project, 0)
        if known.max_tasks is not None and count >= known.max_tasks:
            raise Refused(f"project {project} has {count} tasks at once and may have no more")
        spoken_for_s = self.used_s.get(project, 0.0) + self.reserved_s.get(project, 0.0)
        if known.budget_s is not None and spoken_for_s + expected_s > known.budget_s:
            raise Refused(
                f"project {project} has {max(0.0, known.budget_s - spoken_for_s):.1f} QPU-seconds left of "
                f"{known.budget_s:g}, and this task takes {expected_s:.1f}",
                hint="ask for a larger budget",
            )
        self._admit_job(job)
        if count == 0:
            busy = [name for name, tasks in self.tasks.items() if tasks > 0]
            self.usage.begin(project, busy, now_us)
        self.take_task(project, job, expected_s)

    def take_task(self, project: str, job: str, expected_s: float) -> None:
        """Count a task that was admitted, and reserve its seconds."""
        self.tasks[project] = self.tasks.get(project, 0) + 1
        self.reserved_s[project] = self.reserved_s.get(project, 0.0) + expected_s
        self.jobs[job] = self.jobs.get(job, 0) + 1

    def change_reserve(self, project: str, was_s: float, is_s: float) -> None:
        """A task that waits is to take another time."""
        self.reserved_s[project] += is_s - was_s

    def charge(self, project: str, billed_s: float, now_us: int) -> None:
        """A device was used, by an attempt that may have failed."""
        self.used_s[project] = self.used_s.get(project, 0.0) + billed_s
        self.usage.charge(project, billed_s, now_us)

    def settle_task(self, project: str, job: str, expected_s: float) -> None:
        """A task is over: nothing is reserved for it any more."""
        self.tasks[project] -= 1
        self.reserved_s[project] -= expected_s
        self._leave_job(job)

    def admit_session(self, project: str, job: str, *, whole: bool) -> None:
        """Refuse a session that its project may not have."""
        known = self.project(project)
        if whole and known.max_whole is not None and self.wholes.get(project, 0) >= known.max_whole:
            raise Refused(
                f"project {project} may hold {known.max_whole} whole devices at once", hint="open a share instead"
            )
        count = self.sessions.get(project, 0)
        if known.max_sessions is not None and count >= known.max_sessions:
            raise Refused(f"project {project} has {count} sessions at once and may have no more")
        self._admit_job(job)
        self.take_session(project, job, whole=whole)

    def take_session(self, project: str, job: str, *, whole: bool) -> None:
        """Count a session that was admitted."""
        self.wholes[project] = self.wholes.get(project, 0) + whole
        self.sessions[project] = self.sessions.get(project, 0) + 1
        self.jobs[job] = self.jobs.get(job, 0) + 1

    def end_session(self, project: str, job: str, *, whole: bool) -> None:
        """A session is over."""
        self.wholes[project] -= whole
        self.sessions[project] -= 1
        self._leave_job(job)

    def _admit_job(self, job: str) -> None:
        if self.max_jobs is not None and job not in self.jobs and len(self.jobs) >= self.max_jobs:
            raise Refused(f"{self.max_jobs} hybrid jobs use the QPUs already", hint="try again when one has ended")

    def _leave_job(self, job: str) -> None:
        self.jobs[job] -= 1
        if self.jobs[job] == 0:
            del self.jobs[job]


@functools.lru_cache
def _without_limits(name: str) -> Project:
    return Project(name)
