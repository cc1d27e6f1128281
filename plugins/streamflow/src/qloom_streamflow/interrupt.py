"""A request to terminate is handled as Ctrl-C is: StreamFlow then closes its deployments, and nothing is left."""

from __future__ import annotations

import asyncio
import signal
import sys
from types import TracebackType


def end_on_sigterm() -> None:
    """Called when the plugin is registered, by the task that is `streamflow run`; on its own it would die at once.

    The task is cancelled rather than sent SIGINT, which a command in the background of a script ignores.
    """
    try:
        run = asyncio.current_task()
    except RuntimeError:  # `streamflow schema` runs no loop
        return
    if run is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, run.cancel)
        sys.excepthook = _tell


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Being ended is no error in the program."""
    if issubclass(kind, KeyboardInterrupt | asyncio.CancelledError):
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
