"""What is going on, live, for a person at a terminal: the fold of the journal's events as they are written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from qloom.journal.event import Event
from qloom.journal.fold import RunState
from qloom.journal.state import JobState

JOBS_SHOWN = 20
ACTIVITIES_SHOWN = 3


class Progress:
    """One line per job: what it holds and what it does."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._run = RunState()
        self._began_s = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        self._run.apply(event)
        self._run.trace.clear()  # only what is open is shown

    def __rich__(self) -> Text:
        lines = [f"{self._title}  {time.monotonic() - self._began_s:.0f} s"]
        for job in list(self._run.jobs.values())[:JOBS_SHOWN]:
            held = len(job.nodes)
            nodes = f"{held} {'node' if held == 1 else 'nodes'}"
            lines.append(f"  {job.name}  {nodes}, {job.done_tasks} tasks done, {_activity(job)}")
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


def _activity(job: JobState) -> str:
    if job.ended is not None:
        return job.ended.state
    doing = ["waits for resources" for _ in job.requests]
    doing += [task.label for task in job.tasks.values()]
    doing += [task.label for task in job.queued.values()]
    doing += [f"{task.label} on {task.resource}" for task in job.executing.values()]
    return ", ".join(list(dict.fromkeys(doing))[:ACTIVITIES_SHOWN]) or "thinks"


@contextmanager
def shown(title: str, console: Console, wanted: bool) -> Iterator[Progress | None]:
    """Progress while a run lasts, on a terminal only."""
    if not wanted or not console.is_terminal:
        yield None
        return
    progress = Progress(title)
    with Live(progress, console=console, refresh_per_second=8, transient=True):
        yield progress
