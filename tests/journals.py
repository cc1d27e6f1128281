"""Journals as their readers outside of Python see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qloom.journal.event import Event


def as_lines(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The lines of a journal, decoded."""
    return [event.as_dict() for event in events]
