"""What is going on, live: a few lines that are redrawn on a terminal, one line a minute elsewhere.

`run` and its kin fold the events that they write; `watch` follows the journal of any run. Both show the same lines.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from qloom.journal import file
from qloom.journal.event import Event
from qloom.journal.fold import RunState
from qloom.runs.live import LiveRun
from qloom.views.estimate import EarlierRun, EndEstimate, find_earlier
from qloom.views.status import status_line, status_lines
from qloom.views.summary import printable

MOST_NEW = 1000  # events that are noted before they are folded
LINE_EVERY_S = 60.0
LOOK_EVERY_S = 0.5  # at a journal that another process writes


class Progress:
    """A run of this process, from its events; they are folded when somebody looks, or there are many."""

    def __init__(self, past: Sequence[Event] = ()) -> None:
        self._run = RunState()
        self._new: deque[Event] = deque(past)
        self._lock = threading.Lock()  # a thread shows what another one runs
        self._earlier: EarlierRun | None = None

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        self._new.append(event)
        if len(self._new) >= MOST_NEW:
            with self._lock:
                self._catch_up()

    def lines(self) -> list[str]:
        """How the run stands; nothing before its first event."""
        return self._shown(status_lines)

    def line(self) -> list[str]:
        """The same in one line."""
        return self._shown(lambda *now: [status_line(*now)])

    def _shown(self, show: Callable[[RunState, str, int, EndEstimate | None], list[str]]) -> list[str]:
        with self._lock:
            self._catch_up()
            run = self._run
            if run.start.n < 0:
                return []
            epoch_us = run.start.epoch_us
            now_us = run.now_us if epoch_us is None else time.time_ns() // 1000 - epoch_us
            estimate = self._earlier.estimate(run, now_us) if self._earlier is not None else None
            return show(run, run.state_of() or "running", now_us, estimate)

    def _catch_up(self) -> None:
        begins = self._run.start.n < 0 and bool(self._new)
        while self._new:
            self._run.apply(self._new.popleft())
        self._run.trace.clear()  # only what is open is shown
        if begins and file.written:
            self._earlier = find_earlier(self._run.start, file.written[-1].name)


class _Redrawn:
    """Lines that a terminal shows again and again."""

    def __init__(self, lines: Callable[[], list[str]]) -> None:
        self._lines = lines

    def __rich__(self) -> Text:
        return Text("\n".join(self._lines()), no_wrap=True, overflow="ellipsis")


@contextmanager
def shown(console: Console, wanted: bool, past: Sequence[Event] = ()) -> Iterator[Progress | None]:
    """Progress while a run of this process lasts; `past` are the events of a run that is resumed."""
    if not wanted:
        yield None
        return
    progress = Progress(past)
    with shown_lines(console, progress.lines, progress.line):
        yield progress


@contextmanager
def shown_lines(console: Console, lines: Callable[[], list[str]], line: Callable[[], list[str]]) -> Iterator[None]:
    """Lines that are redrawn on a terminal; elsewhere one line a minute, for the log of a batch job."""
    if console.is_terminal:
        with Live(get_renderable=lambda: _Redrawn(lines), console=console, transient=True):
            yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_log, args=(line, console, over), name="qloom-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _log(line: Callable[[], list[str]], console: Console, over: threading.Event) -> None:
    while not over.wait(LINE_EVERY_S):
        for text in line():
            console.print(Text(text), soft_wrap=True)


def watch_run(directory: Path, console: Console, *, once: bool = False) -> LiveRun:
    """Show a run until it does not go on; returns it as it stands then."""
    live = LiveRun(directory)
    live.refresh()
    if once or not live.goes_on:
        _print_lines(live, console)
        return live
    if console.is_terminal:
        with Live(
            get_renderable=lambda: _Redrawn(lambda: lines_of(live)), console=console, auto_refresh=False
        ) as view:
            while live.goes_on:
                time.sleep(LOOK_EVERY_S)
                live.refresh()
                view.refresh()
        return live
    shown_s = -LINE_EVERY_S
    while live.goes_on:
        if time.monotonic() - shown_s >= LINE_EVERY_S:
            shown_s = time.monotonic()
            console.print(Text(status_line(live.run, live.state, live.now_us, live.estimate())), soft_wrap=True)
        time.sleep(LOOK_EVERY_S)
        live.refresh()
    _print_lines(live, console)
    return live


def _print_lines(live: LiveRun, console: Console) -> None:
    console.print(Text("\n".join(lines_of(live))), soft_wrap=True)


def lines_of(live: LiveRun) -> list[str]:
    """How a run stands; for one that does not go on, where its time went."""
    if live.run.start.n < 0:
        return [printable(live.trouble or "the journal holds no run yet")]
    if live.goes_on:
        return status_lines(live.run, live.state, live.now_us, live.estimate())
    trouble = [printable(live.trouble)] if live.trouble is not None else []
    return [*map(printable, live.sentences()), *trouble]
