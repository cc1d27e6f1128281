"""Streams of events for browsers: the list of runs, and one run as it goes on.

All browsers that look at one run share one reader of its journal. Whoever comes, or comes back, is first sent the
whole; then all are sent the same changes. One that does not read is cut off and comes back by itself. Journals are
read in threads, and reading them takes at most a hundredth of the time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from qloom.aio import TaskScope, report_failure
from qloom.dashboard.describe import RunDescription, look, row_of
from qloom.errors import JournalError
from qloom.journal import home
from qloom.journal.file import FILE_NAME
from qloom.runs.live import LiveRun
from qloom.runs.logs import LogReader
from qloom.views.bars import BarChanges, LiveBars
from qloom.views.summary import printable

LOOK_EVERY_S = 0.5
LOOK_AT_LEAST_EVERY_S = 5.0
COST_SHARE = 150  # a look is followed by a pause of this many times the processor time it took
BEHIND = 20  # messages that a browser may have unread
HEARTBEAT_S = 10.0
RUNS_SHOWN = 50
LINES_SHOWN, LINE_CHARACTERS = 500, 1000

Json = dict[str, Any]


class Viewer:
    """One browser's stream."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()

    def send(self, message: str) -> None:
        """Send a message, or cut off a browser that does not read."""
        if self._queue.qsize() < BEHIND:
            self._queue.put_nowait(message)
        else:
            self.close()

    def close(self) -> None:
        """End the stream; the browser comes back."""
        self._queue.put_nowait(None)

    async def messages(self) -> AsyncIterator[str]:
        """What to send, with a sign of life now and then."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    message = await self._queue.get()
            except TimeoutError:
                yield ": still here\n\n"
                continue
            if message is None:
                return
            yield message


def event(name: str, content: Json) -> str:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"


class Channel:
    """Something that is looked at again and again while somebody watches, and sent to all who do."""

    def __init__(self) -> None:
        self._viewers: list[Viewer] = []
        self._expected = 0  # viewers, those included that are about to join
        self._lock = asyncio.Lock()
        self._scope = TaskScope(report_failure)
        self._looking: asyncio.Task[Any] | None = None

    async def join(self, viewer: Viewer) -> None:
        """Send the whole to a new viewer, and then what changes."""
        async with self._lock:
            await self._send_change()
            viewer.send(await asyncio.to_thread(self.whole))
            self._viewers.append(viewer)
        if self._looking is None or self._looking.done():
            self._looking = self._scope.spawn(self._look())

    def enter(self) -> None:
        """Somebody is about to join: the channel is kept for them."""
        self._expected += 1

    def leave(self, viewer: Viewer) -> bool:
        """A viewer that had entered has gone; returns whether nobody is left."""
        self._expected -= 1
        if viewer in self._viewers:
            self._viewers.remove(viewer)
        return not self._expected

    async def _look(self) -> None:
        while self._viewers:
            async with self._lock:
                cost_s = await self._send_change()
            await asyncio.sleep(min(max(LOOK_EVERY_S, COST_SHARE * cost_s), LOOK_AT_LEAST_EVERY_S))

    async def _send_change(self) -> float:
        """Returns the processor time that it took."""

        def measured() -> tuple[str | None, float]:
            began_s = time.thread_time()
            return self.change(), time.thread_time() - began_s

        message, cost_s = await asyncio.to_thread(measured)
        if message is not None:
            for viewer in self._viewers:
                viewer.send(message)
        return cost_s

    def end(self) -> None:
        """End all streams."""
        for viewer in self._viewers:
            viewer.close()

    async def close(self) -> None:
        """Look no more."""
        await self._scope.aclose()

    def whole(self) -> str:
        """All that there was at the last `change`; called in a thread."""
        raise NotImplementedError

    def change(self) -> str | None:
        """Look, and return what has changed since the last time; called in a thread."""
        raise NotImplementedError


class RunChannel(Channel):
    """One run."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._live = LiveRun(directory)
        self._bars = LiveBars(self._live.run)
        self._description = RunDescription(self._live)
        self._last: Json = {}

    def whole(self) -> str:
        """Every bar, and how the run stands."""
        bars = [bar.as_list() for bar in self._bars.bars()]
        return event("whole", {"look": look(), "rows": self._rows(), "bars": bars, "head": self._last})

    def change(self) -> str | None:
        """Bars that opened, ended or vanished, and how the run stands."""
        self._live.refresh()
        changes = self._bars.catch_up()
        before, self._last = self._last, self._description.head()
        if not changes and _settled(before) == _settled(self._last):
            return None
        return event("change", {**self._changed(changes), "head": self._last})

    def _changed(self, changes: BarChanges) -> Json:
        ended = [[bar.number, bar.begin_us, bar.end_us, bar.state] for bar in changes.ended]
        content: Json = {"opened": [bar.as_list() for bar in changes.opened], "ended": ended}
        content["dropped"] = changes.dropped
        if changes.rows:
            content["rows"] = self._rows()
        return content

    def _rows(self) -> list[Json]:
        return [row.as_dict() for row in self._bars.rows()]


def _settled(head: Json) -> Json:
    """Without what a clock alone changes while a run goes on, which the page counts itself."""
    return {name: value for name, value in head.items() if name not in ("now_us", "left_s", "done")}


class LogsChannel(Channel):
    """What the tasks of a run print; the last lines are kept."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._reader = LogReader(directory / "logs")
        self._lines: deque[str] = deque(maxlen=LINES_SHOWN)

    def whole(self) -> str:
        """The last lines."""
        return event("whole", {"lines": list(self._lines)})

    def change(self) -> str | None:
        """The lines that have come."""
        new = deque((printable(line[:LINE_CHARACTERS]) for line in self._reader.read()), LINES_SHOWN)
        self._lines += new
        return event("more", {"lines": list(new)}) if new else None


class RunsChannel(Channel):
    """The list of runs, newest first."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[str, LiveRun] = {}  # those that may still change by themselves
        self._rows: dict[str, tuple[tuple[int, int], Json]] = {}  # with the size and time of the journal
        self._last: list[Json] = []

    def whole(self) -> str:
        """Every row."""
        return event("runs", {"runs": self._last})

    def change(self) -> str | None:
        """Every row again if any has changed; they are few."""
        before, self._last = self._last, self._list()
        return self.whole() if self._last != before else None

    def _list(self) -> list[Json]:
        try:
            names = [name for name in home.run_names() if not home.is_part(name)][-RUNS_SHOWN:]
        except JournalError:
            return []
        for gone in [name for name in (*self._live, *self._rows) if name not in names]:
            self._live.pop(gone, None)
            self._rows.pop(gone, None)
        return [self._row(name) for name in reversed(names)]

    def _row(self, name: str) -> Json:
        directory = home.runs_directory() / name
        try:
            found = (directory / FILE_NAME).stat()
        except OSError:
            return {"run": name, "state": "unreadable", "problem": "it has just been removed"}
        stamp = (found.st_size, found.st_mtime_ns)
        known = self._rows.get(name)
        if known is not None and known[0] == stamp and name not in self._live:
            return known[1]
        live = self._live.setdefault(name, LiveRun(directory))
        live.refresh()
        live.run.trace.clear()  # only how it stands is shown
        row = row_of(live)
        self._rows[name] = (stamp, row)
        if not live.goes_on:
            del self._live[name]
        return row
