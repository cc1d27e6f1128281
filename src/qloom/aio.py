"""Small helpers for asyncio that more than one room needs."""

from __future__ import annotations

import asyncio
from typing import Any


async def see_through(task: asyncio.Future[Any], *, cancel: bool = False) -> None:
    """Wait until a task has ended, through any number of cancellations of the caller, then honour them."""
    if cancel:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
