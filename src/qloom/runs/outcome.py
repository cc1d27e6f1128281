"""What came of a run: the results of its jobs or their errors, as it ends or later from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from qloom.errors import QloomError, ResultLost, error_from
from qloom.journal.event import Event
from qloom.journal.events import JobEnded
from qloom.journal.file import start_of
from qloom.journal.history import History, read_history
from qloom.journal.queries import require_jobs
from qloom.journal.results import ResultStore
from qloom.programs.load import find_modules
from qloom.views.accounting import account
from qloom.views.page import brief


@dataclass(frozen=True, repr=False)
class Outcome:
    """The results of a run. A notebook shows it as a table and a timeline."""

    run: str
    directory: Path | None
    results: list[Any]  # one per job; None for a job that failed
    errors: list[QloomError]
    events: list[Event]
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> Any:
        """The result of the first job; raises if it failed."""
        if self.errors:
            raise self.errors[0]
        return self.results[0]

    def __repr__(self) -> str:
        start, history = start_of(self.events), read_history(self.events)
        jobs = "1 job" if start.jobs == 1 else f"{start.jobs} jobs"
        state = history.run.state_of() or "unfinished"
        return (
            f"<Outcome of {self.run}: {jobs} {state}, {start.strategy}, {start.world}, {self._wall_s(history):.1f} s>"
        )

    def _repr_html_(self) -> str:
        history = read_history(self.events)
        errors = "".join(f"<p><b>{escape(str(error))}</b></p>" for error in self.errors)
        return f"<p><code>{escape(repr(self))}</code></p>{errors}{brief(history.start.strategy, self.events)}"

    @staticmethod
    def _wall_s(history: History) -> float:
        return account(history).wall_s


def read_outcome(directory: Path, events: Sequence[Event]) -> Outcome:
    """The outcome of a run that has ended, from its journal. Results are pickles: only of one's own runs."""
    require_jobs(events, directory.name)
    start = start_of(events)
    ends = {event.job: event for event in events if isinstance(event, JobEnded)}
    last = [ends.get(f"j{number + 1}") for number in range(start.jobs)]
    store = ResultStore(directory / "results")
    find_modules(start.program or "")  # of classes that the program defines
    results = [_result(store, end) for end in last]
    errors = [error_from(end.error) for end in last if end is not None and end.error is not None]
    return Outcome(directory.name, directory, results, errors, list(events))


def _result(store: ResultStore, end: JobEnded | None) -> Any:
    if end is None or end.result is None:
        return None
    try:
        return store.load(end.result)
    except (ImportError, AttributeError) as error:
        raise ResultLost(
            f"the result of job {end.job} cannot be read: {error}", hint="is its program gone?"
        ) from None
