"""How errors are told: in one line, once, unless somebody looks for more."""

from __future__ import annotations

import asyncio
import logging

import pytest
from streamflow.core.exception import WorkflowExecutionException
from streamflow.log_handler import logger

from qloom_streamflow.told import OneLine


@pytest.fixture
def shown(monkeypatch):
    """What a logger with the filter shows."""
    records = []

    class Kept(logging.Handler):
        def emit(self, record):
            records.append(record)

    monkeypatch.setattr(logger, "handlers", [Kept()])
    monkeypatch.setattr(logger, "filters", [OneLine()])
    level = logger.level
    yield records
    logger.setLevel(level)


def tell(error):
    try:
        raise error
    except Exception as caught:
        logger.exception(caught)


def test_an_error_for_users_is_told_once_in_one_line(shown):
    for why in ("no broker", "no job", "no broker"):
        tell(WorkflowExecutionException(why))
    logger.error("no job")
    assert [record.getMessage() for record in shown] == ["no broker", "no job"]
    assert [record.exc_info for record in shown] == [None, None]


def test_what_follows_from_cancelling_is_no_error(shown):
    broken = AttributeError("no database any more")
    broken.__context__ = asyncio.CancelledError()
    tell(broken)
    assert shown == []


def test_an_error_in_streamflow_itself_keeps_its_traceback(shown):
    tell(KeyError("moon"))
    assert shown[0].exc_info is not None


def test_whoever_debugs_sees_all(shown):
    logger.setLevel(logging.DEBUG)
    error = WorkflowExecutionException("no broker")
    tell(error)
    tell(error)
    assert [record.exc_info[1] for record in shown] == [error, error]
