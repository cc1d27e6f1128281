"""Everything that can go wrong, as one tree.

    QloomError
    ├── InputError            the input was wrong: change it and try again   (exit code 2)
    │   ├── NeedError         a task asks for more than there is
    │   ├── PayloadError      a payload that no device can take
    │   ├── PolicyError       a user's scheduling policy is wrong
    │   ├── NotPrivate        a file or directory that another user owns or can change
    │   ├── Refused           the broker does not admit it: budget, limit, promise, closed session
    │   └── JournalError      a run that cannot be read, resumed or written
    │       ├── ProgramChanged    the program no longer matches its journal
    │       └── ResultLost        a result that the journal names is missing or damaged
    └── JobError              the job failed                                  (exit code 1)
        ├── TaskFailed        a task raised, exited or was killed
        │   └── NodeLost      a node failed under a task, and so did the retries
        ├── AllocationEnded   the engine took an allocation away: cancelled, preempted, out of time
        ├── QuantumFailed     a device refused or failed a quantum task
        │   ├── UnknownTask       the device does not have this task
        │   ├── CannotTell        the device cannot say whether it was given a task
        │   └── Unreachable       the device does not answer now
        ├── BudgetSpent       the run has held as many QPU-seconds as it may
        ├── CalibrationChanged    a device was recalibrated between two answers of a run
        └── Deadlock          virtual time only: nothing is left to happen

Each error says what happened, for which job, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class QloomError(Exception):
    """Base of all errors: what happened (the message), for which `job`, and a `hint` on what to do."""

    exit_code = 1

    def __init__(self, message: str, *, job: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.job = job
        self.hint = hint

    def __str__(self) -> str:
        where = f"job {self.job}: " if self.job else ""
        what_to_do = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{what_to_do}"

    def as_dict(self) -> dict[str, str | None]:
        """The error as `--json` prints it."""
        return {"error": type(self).__name__, "message": self.message, "job": self.job, "hint": self.hint}


def closest(word: str, known: Iterable[str]) -> str:
    """The hint for a mistyped word: 'did you mean NAME?'; empty if no known word is close."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {found[0]}?" if found else ""


class InputError(QloomError):
    """The input was wrong; nothing has been run."""

    exit_code = 2


class NeedError(InputError):
    """A task or a job asks for more than the machine has."""


class PayloadError(InputError):
    """A payload that is not what a device takes."""


class PolicyError(InputError):
    """A user's scheduling policy raised, changed the state, gave the wrong amounts, or starts nobody."""


class NotPrivate(InputError):
    """A file or directory that must be this user's alone, and that another user owns or can change."""


class Refused(InputError):
    """The broker does not admit a task or a session: a budget, a limit or a promise does not allow it."""


class JournalError(InputError):
    """A run that cannot be found, read, written or resumed."""


class ProgramChanged(JournalError):
    """The program no longer makes the calls that its journal holds."""


class ResultLost(JournalError):
    """A result that the journal names is missing or damaged; resuming the run makes it again."""


class JobError(QloomError):
    """The job ran and failed."""


class TaskFailed(JobError):
    """A classical task raised an exception, exited or was killed."""


class NodeLost(TaskFailed):
    """A node failed while running a task. The task is retried elsewhere; this is raised if the retries fail too."""


class AllocationEnded(JobError):
    """The engine ended an allocation that the job still needed. Finished work is kept, and the run can be resumed."""


class QuantumFailed(JobError):
    """A quantum task could not be run, or its device failed."""


class UnknownTask(QuantumFailed):
    """The device does not have this task."""


class CannotTell(QuantumFailed):
    """The device cannot say whether it was given a task."""


class Unreachable(QuantumFailed):
    """The device does not answer at the moment. `find` reports later whether it was given a task."""


class BudgetSpent(JobError):
    """The run has held as many QPU-seconds as it may: what is done is kept, and the run can be resumed with more."""


class CalibrationChanged(JobError):
    """A device was recalibrated between two answers of a run that was to stop then. It can be resumed."""


class Deadlock(JobError):
    """In virtual time: jobs wait, and nothing is left to happen."""


def error_from(recorded: Mapping[str, str | None]) -> QloomError:
    """The error that `as_dict` was called on; an unknown kind, of a newer version, is a `JobError`."""
    kinds: list[type[QloomError]] = [QloomError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    named = next((kind for kind in kinds if kind.__name__ == recorded.get("error")), JobError)
    error = named.__new__(named)  # a kind may take other arguments
    QloomError.__init__(error, recorded.get("message") or "", job=recorded.get("job"), hint=recorded.get("hint"))
    return error
