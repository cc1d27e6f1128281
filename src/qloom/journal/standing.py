"""Where a run stands at the last event of its journal: who holds, runs and waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qloom.journal.file import Event
from qloom.journal.handed import HANDED_ON, goes_on


@dataclass
class Held:
    """An allocation."""

    nodes: list[str]
    device: str | None = None
    hold: str | None = None  # "whole" | "share"


@dataclass
class JobStanding:
    """One job. What is open has its event, which says since when."""

    name: str
    submitted_us: int = 0
    ended: Event | None = None
    calls: dict[str, Event] = field(default_factory=dict)
    requests: dict[str, Event] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    tasks: dict[str, Event] = field(default_factory=dict)
    queued: dict[str, Event] = field(default_factory=dict)
    executing: dict[str, Event] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # quantum work -> its name
    candidates: list[Event] = field(default_factory=list)
    went_without: tuple[Event, int] | None = None  # a request that was withdrawn since the last call, and when
    failed_tasks: int = 0
    dropped_spare: int = 0

    @property
    def nodes(self) -> list[str]:
        """All nodes that the job holds."""
        return [node for held in self.held.values() for node in held.nodes]

    @property
    def idle_nodes(self) -> list[str]:
        """Those on which no task runs."""
        busy = [node for task in self.tasks.values() for node in task["nodes"]]
        return [node for node in self.nodes if node not in busy]


@dataclass(frozen=True)
class Break:
    """When one driver of a run stopped, and the next one began."""

    since_us: int
    until_us: int
    handed_to: str | None = None  # the Slurm job that the run was handed to; None: it was killed or interrupted
    reason: str | None = None  # why it was handed over


@dataclass
class Standing:
    """A run at one moment."""

    start: Event
    jobs: dict[str, JobStanding] = field(default_factory=dict)
    ended: Event | None = None
    breaks: list[Break] = field(default_factory=list)
    now_us: int = 0

    def requests(self) -> list[tuple[str, Event]]:
        """Everyone in line for nodes or a QPU, first come first."""
        waiting = [(job.name, request) for job in self.jobs.values() for request in job.requests.values()]
        return sorted(waiting, key=lambda pair: pair[1]["n"])

    def queue(self, device: str) -> list[tuple[str, Event]]:
        """The quantum tasks that wait for a device, first come first."""
        waiting = [(job.name, task) for job in self.jobs.values() for task in job.queued.values()]
        return sorted(((n, t) for n, t in waiting if t["device"] == device), key=lambda pair: pair[1]["n"])

    def executing(self, device: str) -> list[tuple[str, Event]]:
        """What a device executes."""
        running = [(job.name, task) for job in self.jobs.values() for task in job.executing.values()]
        return [(name, task) for name, task in running if task["device"] == device]

    def owners(self, device: str, hold: str) -> list[str]:
        """The jobs that hold a device in this way."""
        return [
            job.name
            for job in self.jobs.values()
            if any(held.device == device and held.hold == hold for held in job.held.values())
        ]


def standing(events: Sequence[Event]) -> Standing:
    """Read a journal, whole or cut off anywhere."""
    run = Standing(events[0])
    for event in events:
        if event["event"] == "resumed":
            _resume(run, event)
        elif event["event"] == "run_ended":
            run.ended = event
            if event.get("state") == HANDED_ON:
                _forget_open(run)
        elif "job" in event:
            _read(run.jobs.setdefault(event["job"], JobStanding(event["job"])), event)
        run.now_us = max(run.now_us, event["at_us"])
    return run


def _resume(run: Standing, event: Event) -> None:
    """Nothing that was open outlived the process, except the calls that the program makes again."""
    handed_to = event["engine_id"] if run.ended is not None and goes_on(run.ended, event) else None
    reason = run.ended.get("reason") if run.ended is not None else None
    run.breaks.append(Break(run.now_us, event["at_us"], handed_to, reason))
    run.ended = None
    _forget_open(run)


def _forget_open(run: Standing) -> None:
    for job in run.jobs.values():
        if job.ended is None or job.ended["state"] != "done":
            job.ended, job.went_without = None, None
            for open_things in (job.requests, job.held, job.tasks, job.queued, job.executing):
                open_things.clear()


def _read(job: JobStanding, event: Event) -> None:
    match event["event"]:
        case "job_submitted":
            job.submitted_us = event["at_us"]
        case "job_ended":
            job.ended = event
        case "called":
            job.calls[event["call"]] = event
            job.went_without = None
        case "returned":
            job.calls.pop(event["call"], None)
        case "requested":
            job.requests[event["lease"]] = event
        case "still_waits":
            if (request := job.requests.get(event["lease"])) is not None:
                job.requests[event["lease"]] = {**request, "engine_says": event["reason"]}
        case "granted":
            job.requests.pop(event["lease"], None)
            job.held[event["lease"]] = Held(list(event["nodes"]), event.get("device"), event.get("hold"))
        case "grown":
            job.requests.pop(event["lease"], None)
            job.held.setdefault(event["lease"], Held([])).nodes.extend(event["nodes"])
        case "withdrawn":
            if (request := job.requests.pop(event["lease"], None)) is not None:
                job.went_without = (request, event["at_us"])
        case "shrunk":
            if (held := job.held.get(event["lease"])) is not None:
                held.nodes = [node for node in held.nodes if node not in event["nodes"]]
        case "qpu_released":
            if (held := job.held.get(event["lease"])) is not None:
                held.device = held.hold = None
        case "released":
            job.held.pop(event["lease"], None)
        case "candidate":
            job.candidates.append(event)
        case _:
            _read_work(job, event)


def _read_work(job: JobStanding, event: Event) -> None:
    match event["event"]:
        case "task_started":
            job.tasks[event["work"]] = event
        case "task_ended":
            task = job.tasks.pop(event["work"], None)
            job.failed_tasks += event["state"] == "failed"
            job.dropped_spare += bool(task and task.get("spare") and event["state"] == "dropped")
        case "quantum_queued":
            job.queued[event["work"]] = event
            job.names[event["work"]] = event["name"]
        case "quantum_started":
            job.queued.pop(event["work"], None)
            job.executing[event["work"]] = event
        case "quantum_ended":
            job.queued.pop(event["work"], None)
            job.executing.pop(event["work"], None)
