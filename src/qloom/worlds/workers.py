"""Worker processes of this machine by name, and what a task in a worker comes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qloom.errors import TaskFailed
from qloom.journal.event import Record
from qloom.journal.events import WorkerStarted
from qloom.model import CommandResult, Work
from qloom.ports import Clock, Ran
from qloom.worlds.process import TaskRaised, WorkerProcess


class LocalWorkers:
    """Warm processes of this machine, each started when it is first asked for."""

    def __init__(self, clock: Clock, set_up: dict[str, Any], logs: Path | None, record: Record | None) -> None:
        self._clock = clock
        self._set_up = set_up
        self._logs = logs
        self._record = record
        self._known: dict[str, WorkerProcess] = {}

    def get(self, name: str) -> WorkerProcess:
        """The live worker of that name; a dead one is replaced."""
        known = self._known.get(name)
        if known is None or not known.alive:
            log = self._logs / f"{name}.log" if self._logs is not None else None
            known = self._known[name] = WorkerProcess(name, self._set_up, log)
            known.ready.add_done_callback(note_start(name, self._clock, self._record))
        return known

    def close(self) -> None:
        """End all of them."""
        for known in self._known.values():
            known.kill()


def note_start(name: str, clock: Clock, record: Record | None) -> Callable[[asyncio.Future[Any]], None]:
    """What a start costs is in the journal, so that virtual time can be given the same."""
    began_us = clock.now_us()

    def note(ready: asyncio.Future[Any]) -> None:
        if record is not None and not ready.cancelled() and ready.exception() is None:
            record(WorkerStarted(node=name, seconds=(clock.now_us() - began_us) / 1e6))

    return note


def task_environment(nodes: Sequence[str], work: Work) -> dict[str, str]:
    """The variables by which a task knows where it is."""
    return {"QLOOM_NODES": ",".join(nodes), "QLOOM_CPUS": str(work.task.cpus), "QLOOM_JOB": work.job}


def exited(result: CommandResult) -> str:
    """How a command failed, and what it said last: after a colon if that is one line, else below."""
    said = (result.stderr or result.stdout).strip()
    between = "\n" if "\n" in said else ": "
    return f"exited with {result.exit_code}" + (f"{between}{said}" if said else "")


async def run_task(worker: WorkerProcess, nodes: Sequence[str], work: Work) -> Ran:
    """Run a task in the worker of its first node; what the task does wrong is a `TaskFailed`."""
    task = work.task
    try:
        ran = await worker.run(task, task_environment(nodes, work))
    except TaskRaised as error:
        raise TaskFailed(f"task {task.name} on {nodes[0]} {error}", job=work.job) from None
    if isinstance(ran.result, CommandResult) and ran.result.exit_code != 0:
        raise TaskFailed(f"task {task.name} on {nodes[0]} {exited(ran.result)}", job=work.job)
    return ran
