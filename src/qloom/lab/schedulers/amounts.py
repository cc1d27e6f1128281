"""What a job may be given when it starts."""

from __future__ import annotations

from operator import index
from typing import Any

from qloom.lab.schedulers.state import Entry, Unstartable


def checked_amounts(entry: Entry, given: Any) -> tuple[int, ...]:
    """The amounts that a policy gives a job, if it may: a rigid one what it asks for, an expander up to its most."""
    try:
        amounts = tuple(map(index, given))
    except TypeError:
        amounts = ()
    if len(amounts) != len(entry.amounts):
        raise Unstartable(f"gives job {entry.id} {given!r}, which is not one whole number for each resource")
    most = (max(entry.most_nodes, entry.amounts[0]), *entry.amounts[1:])
    for resource, least, amount, limit in zip(entry.line.resources, entry.amounts, amounts, most, strict=True):
        if not least <= amount <= limit:
            wanted = f"{least}" if least == limit else f"{least} to {limit}"
            raise Unstartable(f"starts job {entry.id} with {resource.name}={amount} instead of {wanted}")
    return amounts


def virtual_time(now_us: int) -> str:
    """When something happened, as errors say it."""
    return f"at {f'{now_us / 1e6:,.6f}'.rstrip('0').rstrip('.')} s of virtual time"
