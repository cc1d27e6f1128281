"""What a user should know of a run beside its results: work without durations, failures, differences, open calls."""

from __future__ import annotations

from qloom.journal.event import Event
from qloom.journal.events import Diverged, Recalibrated, Resumed
from qloom.journal.file import ended_as
from qloom.journal.queries import abandoned_calls, failed_tasks
from qloom.views.summary import recalibration_in_words
from qloom.world import World


def notes_on(world: World, events: list[Event]) -> list[str]:
    """What to say beside the results, line by line."""
    silent = world.tasks_without_expectation
    notes = [f"no expected_s, so no virtual time, for: {', '.join(silent)}"] if silent else []
    failed = failed_tasks(events)
    if failed and ended_as(events) == "done":
        tasks = "1 task" if len(failed) == 1 else f"{len(failed)} tasks"
        notes.append(f"{tasks} failed and the program went on; the first: {failed[0]}")
    since = max((place for place, event in enumerate(events) if isinstance(event, Resumed)), default=0)
    for event in events[since:]:
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
