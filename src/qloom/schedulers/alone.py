"""An EASY pass for one line of one resource: nearly every pass over rigid jobs, so it is written to be fast.

It gives the same starts as the general pass in `easy.py`; tests hold both against the definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from qloom.schedulers.policy import Start
from qloom.schedulers.state import FOREVER_US, Entry, Line, State

NOBODY: Iterator[Entry] = iter(())  # behind a job that is in no bucket yet


def fill_alone(state: State, line: Line) -> list[Start]:
    """Start the heads that fit, reserve for the first that does not, and backfill around it."""
    now_us, resource = state.now_us, line.resources[0]
    free = resource.free
    starts: list[Start] = []
    head = None
    for entry in line.queue:
        if entry.waiting:
            wanted = entry.amounts[0]
            if wanted > free:
                head = entry
                break
            given = entry.amounts if entry.most_nodes <= wanted else (min(entry.most_nodes, free),)
            free -= given[0]
            starts.append((entry, given))
    if head is None:
        return starts
    candidates: list[tuple[int, Entry, Iterator[Entry]]] = []
    for entry in state.arrived:
        if entry.order > head.order and entry.waiting:
            candidates.append((entry.order, entry, NOBODY))
    sizes = line.fitting(free) if state.freed else ()  # else nobody who waited before can start now
    if not candidates and not sizes:
        return starts
    ends = resource.ends
    if starts:
        ends = sorted(ends + [(now_us + entry.limit_us, entry.order, given[0]) for entry, given in starts])
    shadow_us, extra = _reservation(ends, head.amounts[0], free, now_us)
    window_us = shadow_us - now_us
    if sizes:
        candidates += _first_of_each(line, sizes, head.order, extra, window_us)
        heapify(candidates)
    while candidates:
        _order, entry, behind = heappop(candidates)
        wanted = entry.amounts[0]
        is_short = entry.limit_us <= window_us
        room = free if is_short or free < extra else extra
        if wanted > room:
            continue
        given = entry.amounts if entry.most_nodes <= wanted else (min(entry.most_nodes, room),)
        free -= given[0]
        if not is_short:
            extra -= given[0]
        starts.append((entry, given))
        for following in behind:
            if following.waiting:
                heappush(candidates, (following.order, following, behind))
                break
    return starts


def _reservation(ends: list[tuple[int, int, int]], wanted: int, free: int, now_us: int) -> tuple[int, int]:
    """When the head can start at the latest, and how much is left over beside it then."""
    coming = iter(ends)
    for end_us, _order, amount in coming:
        free += amount
        if free >= wanted:
            shadow_us = end_us if end_us > now_us else now_us
            break
    else:
        return FOREVER_US - 1, free - wanted  # it waits for a lost node to come back
    for end_us, _order, amount in coming:
        if end_us > shadow_us:
            break
        free += amount
    return shadow_us, free - wanted


def _first_of_each(
    line: Line, sizes: Sequence[tuple[int, ...]], after: int, extra: int, window_us: int
) -> list[tuple[int, Entry, Iterator[Entry]]]:
    """The first job behind the head of each size and limit that could start."""
    found: list[tuple[int, Entry, Iterator[Entry]]] = []
    for amounts in sizes:
        limits, buckets = line.by_amounts[amounts]
        small = amounts[0] <= extra
        for limit_us in limits:
            if limit_us > window_us and not small:
                break
            for entry in (behind := iter(buckets[limit_us])):
                if entry.order > after and entry.waiting:
                    found.append((entry.order, entry, behind))
                    break
    return found
