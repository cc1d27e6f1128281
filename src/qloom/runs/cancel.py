"""Cancelling a run from another process: its driver gives everything back, and the run can be resumed."""

from __future__ import annotations

import os
import signal

from qloom.errors import InputError
from qloom.identity import own_process
from qloom.journal import home, owner
from qloom.journal.file import read_events
from qloom.journal.fold import fold
from qloom.journal.home import run_state
from qloom.journal.queries import handed_to, require_jobs


def cancel(name: str) -> str:
    """Ask the driver of a run to stop, or Slurm to end the job it lives in; returns what was done, in words."""
    directory = home.find_run(name)
    home.require_own(directory)
    events = read_events(directory)
    require_jobs(events, directory.name)
    state = run_state(directory, fold(events).state_of())
    if state not in ("running", "open", "submitted"):
        raise InputError(f"{directory.name} does not run: it is {state}", hint=f"qloom watch {directory.name}")
    if (job := handed_to(events)) is not None:
        from qloom.slurm.commands import call_once

        answer = call_once("scancel", job)
        if answer.code != 0:
            raise InputError(f"Slurm did not cancel job {job}: {answer.complaint}")
        return f"Slurm job {job} is cancelled"
    process = owner.owner_of(directory)
    if process is None:
        raise InputError(f"nobody knows which process runs {directory.name}", hint="end it where it was started")
    if process.host != own_process().host:
        raise InputError(f"its driver is process {process.pid} on {process.host}", hint=f"there: kill {process.pid}")
    try:
        handle = os.pidfd_open(int(process.pid))
    except OSError:
        raise InputError(f"the driver of {directory.name} has just ended") from None
    try:
        if process.is_dead():  # looked at once more: its number may be in use again
            raise InputError(f"the driver of {directory.name} has just ended")
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except PermissionError:
        raise InputError(f"process {process.pid} belongs to somebody else") from None
    except ProcessLookupError:
        raise InputError(f"the driver of {directory.name} has just ended") from None
    finally:
        os.close(handle)
    return f"process {process.pid} was asked to stop"
