"""One line for each error: StreamFlow logs it with its traceback, again in every place that it passes through."""

from __future__ import annotations

import asyncio
import logging

from streamflow.core.exception import WorkflowException
from streamflow.log_handler import logger

ASYNCIO = "asyncio"


class OneLine(logging.Filter):
    """What was raised for a user to read is told once, without a traceback; `streamflow run --debug` tells all."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, None] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown; errors in StreamFlow itself are left as they are."""
        error = record.exc_info[1] if record.exc_info else None
        if logger.isEnabledFor(logging.DEBUG):
            return True
        if error is None:
            return record.getMessage() not in self._told
        if _follows_from_cancelling(error):  # of the other steps, when the reason has been told
            return False
        if not isinstance(error, WorkflowException):
            return True
        if record.name == ASYNCIO:  # what steps run into that are only cancelled when all is closed
            return False
        is_new = str(error) not in self._told
        self._told[str(error)] = None
        record.exc_info = None
        return is_new


def _follows_from_cancelling(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, asyncio.CancelledError):
        error = error.__context__
    return error is not None


def tell_errors_in_one_line() -> None:
    """Called once, when the plugin is registered."""
    one_line = OneLine()
    for filtered in (logger, logging.getLogger(ASYNCIO)):
        filtered.addFilter(one_line)
