"""What came of a run: results or errors of its jobs, and what to say beside them; as it ends, or from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from qloom.errors import QloomError, ResultLost, error_from
from qloom.journal.event import Event
from qloom.journal.events import Diverged, JobEnded, Recalibrated
from qloom.journal.file import ended_as, start_of
from qloom.journal.history import History, read_history
from qloom.journal.queries import abandoned_calls, failed_tasks, require_jobs, since_resumed
from qloom.journal.results import ResultStore
from qloom.programs.load import find_modules
from qloom.views.accounting import account
from qloom.views.page import brief
from qloom.views.summary import recalibration_in_words
from qloom.world import World


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


def notes_on(world: World, events: list[Event]) -> list[str]:
    """What to say beside the results, line by line."""
    silent = world.tasks_without_expectation
    notes = [f"no expected_s, so no virtual time, for: {', '.join(silent)}"] if silent else []
    failed = failed_tasks(events)
    if failed and ended_as(events) == "done":
        tasks = "1 task" if len(failed) == 1 else f"{len(failed)} tasks"
        notes.append(f"{tasks} failed and the program went on; the first: {failed[0]}")
    for event in [event for event in since_resumed(events) if type(event) in (Diverged, Recalibrated)]:
        if isinstance(event, Diverged):
            now = f"is now {event.now}" if event.now is not None else "is not made any more"
            notes.append(
                f"job {event.job} differs from its journal: call {event.order + 1} was {event.then}, and {now}"
            )
        elif isinstance(event, Recalibrated) and event.action == "warn":
            notes.append(recalibration_in_words(event))
    for job, calls in abandoned_calls(events).items():
        number = "1 call" if len(calls) == 1 else f"{len(calls)} calls"
        hint = "await it, or ask its handle for the result"
        notes.append(f"job {job} ended before {number} that it made: {', '.join(dict.fromkeys(calls))} ({hint})")
    return notes
