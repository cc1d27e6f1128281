"""EASY backfilling: a later job may start early if it does not delay the first that waits.

In the order of arrival: a job starts if it fits now and delays no reservation; else, if nobody before it has a
reservation on anything that it wants, it gets one on all of it. (Lifka 1995; Mu'alem and Feitelson 2001.) With one
partition that is EASY as published; with several, each has its own head, and a job that wants nodes and a QPU is the
head of both or of neither.

Nearly every pass over rigid jobs is over one line of one resource: `fill_alone` is that case, written to be fast. It
gives the same starts as the general pass; tests hold both against the definition.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from qloom.lab.schedulers.policy import NOTHING, Backfill, Decision, Pass, Start
from qloom.lab.schedulers.state import FOREVER_US, Entry, PolicyLine, SameAmounts, State

Head = tuple[int, Entry, Iterator[Entry], bool]  # order, job, those behind it, whether these are one bucket only
Candidate = tuple[int, int, Entry, Iterable[Entry]]  # its order, what it wants, the job, the bucket it is first of


class Easy(Backfill):
    """Reserves for the first job that cannot start; the others may go before it if they do not delay it."""

    def fill(self, state: State) -> Decision:
        """Start what can start, in order, around the reservations."""
        if self.depth:
            return Decision(_walk(Pass(state), self.depth))
        alone = state.only_line()
        starts = fill_alone(state, alone) if alone is not None else _fill(Pass(state))
        return Decision(starts) if starts else NOTHING


def _walk(current: Pass, depth: int) -> list[Start]:
    """The definition, over the first `depth` who wait."""
    for entry in islice(current.state.waiting, depth):
        if not current.admit(entry) and not current.is_reserved(entry):
            current.reserve(entry)
    return current.starts


def _fill(current: Pass) -> list[Start]:
    """The same as a walk over everybody, but once a line is reserved only the first of each size and limit counts."""
    heads: list[Head] = []
    for line in current.state.lines.values():
        if line.queue:
            behind = iter(line.queue)
            first = next(behind)  # who is first always waits
            heads.append((first.order, first, behind, False))
    heapify(heads)
    while heads:
        order, entry, behind, is_bucket = heappop(heads)
        if not is_bucket and current.is_reserved(entry):  # by a job of another line
            _add_buckets(heads, current, entry.line, order - 1)
        elif current.admit(entry):
            for following in behind:
                if following.waiting:
                    heappush(heads, (following.order, following, behind, is_bucket))
                    break
        elif not is_bucket:
            current.reserve(entry)
            _add_buckets(heads, current, entry.line, order)
    return current.starts


def _add_buckets(heads: list[Head], current: Pass, line: PolicyLine, after: int) -> None:
    """The first job behind `after` of each size and limit that could still start."""
    index = line.resources[0].index
    free, extra = current.free[index], current.extra[index]
    window_us = current.shadow_us[index] - current.state.now_us
    for wanted, limits, buckets in line.fitting(free):
        for limit_us in limits:
            if limit_us > window_us and wanted > extra:
                break
            for entry in (behind := iter(buckets[limit_us])):
                if entry.order > after and entry.waiting:
                    heappush(heads, (entry.order, entry, behind, True))
                    break
    for entry in current.state.arrived:
        if entry.line is line and entry.order > after and entry.waiting:
            heappush(heads, (entry.order, entry, iter(()), True))


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
