"""Spare work that the program has asked for is spare no more."""

from __future__ import annotations

import asyncio

from qloom.job.spare import SparePool
from qloom.model import Task, Work

WORK = Work(Task("fit"), "j1", "key", 0)


def test_what_runs_as_required_work_is_never_begun_as_spare_work():
    """A step for it that was in line may be granted, or dropped, only after the program has asked for the work."""

    async def scenario() -> None:
        pool = SparePool()
        pool.register(WORK)
        assert pool.claim(WORK) is None, "it runs as required work"
        pool.register(WORK)
        assert pool.take() is None

    asyncio.run(scenario())


def test_what_is_dropped_is_begun_again_unless_somebody_waits_for_it():
    async def scenario() -> None:
        pool = SparePool()
        pool.register(WORK)
        assert pool.take() is WORK
        pool.put_back(WORK)
        assert pool.take() is WORK
        run = pool.claim(WORK)
        assert run is not None
        pool.put_back(WORK)
        assert run.exception() is not None, "whoever waits runs it themselves"
        assert pool.take() is None

    asyncio.run(scenario())
