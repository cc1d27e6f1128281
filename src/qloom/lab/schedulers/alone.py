"""An EASY pass for one line of one resource: nearly every pass over rigid jobs, so it is written to be fast.

It gives the same starts as the general pass in `easy.py`; tests hold both against the definition.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from qloom.lab.schedulers.policy import Start
from qloom.lab.schedulers.state import FOREVER_US, Entry, PolicyLine, SameAmounts, State

Candidate = tuple[int, int, Entry, Iterable[Entry]]  # its order, what it wants, the job, the bucket it is first of


def fill_alone(state: State, line: PolicyLine) -> list[Start]:
    """Start the heads that fit, reserve for the first that does not, and backfill around it."""
    resource = line.resources[0]
    free = resource.free
    starts: list[Start] = []
    for head in line.queue:
        if head.waiting:
            wanted = head.amounts[0]
            if wanted > free:
                break
            given = head.amounts if head.most_nodes <= wanted else (min(head.most_nodes, free),)
            free -= given[0]
            starts.append((head, given))
    else:
        return starts
    after = head.order
    candidates: list[Candidate] = []
    for entry in state.arrived:
        if entry.order > after and entry.waiting:
            candidates.append((entry.order, entry.amounts[0], entry, ()))
    groups = line.fitting(free) if state.freed else ()  # else nobody who waited before can start now
    if not free or not (candidates or groups):
        return starts
    now_us, ends = state.now_us, resource.ends
    if starts:
        ends = sorted(ends + [(now_us + entry.limit_us, entry.order, given[0]) for entry, given in starts])
    shadow_us, extra = _reservation(ends, wanted, free, now_us)
    window_us = shadow_us - now_us
    if groups:
        candidates += _first_of_each(groups, after, extra, window_us)
        candidates.sort()
    for order, wanted, entry, bucket in candidates:
        is_short = entry.limit_us <= window_us
        if wanted > free or not (is_short or wanted <= extra):
            continue
        given = entry.amounts
        if entry.most_nodes > wanted:
            given = (min(entry.most_nodes, free if is_short else min(free, extra)),)
        starts.append((entry, given))
        free -= given[0]
        if not free:
            break
        if not is_short:
            extra -= given[0]
        for following in bucket:
            if following.order > order and following.waiting:
                insort(candidates, (following.order, wanted, following, bucket))  # later: this loop will meet it
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


def _first_of_each(groups: Sequence[SameAmounts], after: int, extra: int, window_us: int) -> list[Candidate]:
    """The first job behind the head of each size and limit that could start."""
    found: list[Candidate] = []
    for wanted, limits, buckets in groups:
        for limit_us in limits:
            if limit_us > window_us and wanted > extra:
                break
            for entry in (bucket := buckets[limit_us]):
                if entry.order > after and entry.waiting:
                    found.append((entry.order, wanted, entry, bucket))
                    break
    return found
