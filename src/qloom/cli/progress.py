"""What is going on, live, for a person at a terminal; read from the journal's events as they are written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from qloom.journal.file import Event


class Progress:
    """One line per job: what it holds and what it does."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._held: dict[str, int] = {}
        self._doing: dict[str, dict[str, str]] = {}
        self._done: dict[str, int] = {}
        self._state: dict[str, str] = {}
        self._began_s = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        job = event.get("job")
        if job is None:
            return
        doing = self._doing.setdefault(job, {})
        self._held.setdefault(job, 0)
        match event["event"]:
            case "requested":
                doing[event["lease"]] = "waits for resources"
            case "granted" | "grown":
                doing.pop(event["lease"], None)
                self._held[job] += len(event["nodes"])
            case "withdrawn":
                doing.pop(event["lease"], None)
            case "shrunk":
                self._held[job] -= len(event["nodes"])
            case "released":
                self._held[job] = 0
            case "task_started" | "quantum_queued":
                doing[event["work"]] = event["name"]
            case "quantum_started":
                doing[event["work"]] = f"{doing.get(event['work'], '')} on {event['device']}"
            case "task_ended" | "quantum_ended":
                doing.pop(event["work"], None)
                self._done[job] = self._done.get(job, 0) + (event["state"] == "done")
            case "job_ended":
                self._state[job] = event["state"]

    def __rich__(self) -> Text:
        lines = [f"{self._title}  {time.monotonic() - self._began_s:.0f} s"]
        for job, doing in list(self._doing.items())[:20]:
            what = self._state.get(job) or ", ".join(list(dict.fromkeys(doing.values()))[:3]) or "thinks"
            nodes = f"{self._held[job]} {'node' if self._held[job] == 1 else 'nodes'}"
            lines.append(f"  {job}  {nodes}, {self._done.get(job, 0)} tasks done, {what}")
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


@contextmanager
def shown(title: str, console: Console, wanted: bool) -> Iterator[Progress | None]:
    """Progress while a run lasts, on a terminal only."""
    if not wanted or not console.is_terminal:
        yield None
        return
    progress = Progress(title)
    with Live(progress, console=console, refresh_per_second=8, transient=True):
        yield progress
