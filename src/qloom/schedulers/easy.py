"""EASY backfilling: a later job may start early if it does not delay the first that waits.

In the order of arrival: a job starts if it fits now and delays no reservation; else, if nobody before it has a
reservation on anything that it wants, it gets one on all of it. (Lifka 1995; Mu'alem and Feitelson 2001.) With one
partition that is EASY as published; with several, each has its own head, and a job that wants nodes and a QPU is
the head of both or of neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from qloom.schedulers.alone import fill_alone
from qloom.schedulers.fcfs import start_in_order
from qloom.schedulers.passing import Pass
from qloom.schedulers.policy import Decision, Policy, Start
from qloom.schedulers.state import Entry, Line, State

NOTHING = Decision()


class Easy(Policy):
    """Reserves for the first job that cannot start; the others may go before it if they do not delay it."""

    def decide(self, state: State) -> Decision:
        """Start what can start, in order, around the reservations."""
        if not state.backfill:
            current = Pass(state)
            start_in_order(current)
            return Decision(current.starts)
        if not state.freed and not self.depth and not any_fits(state.arrived):
            return NOTHING  # whoever could not start before still cannot
        if self.depth:
            return Decision(_walk(Pass(state), self.depth))
        lines = [line for line in state.lines.values() if line.queue]
        if len(lines) == 1 and len(lines[0].resources) == 1:
            starts = fill_alone(state, lines[0])
            return Decision(starts) if starts else NOTHING
        return Decision(_fill(Pass(state), lines))


def any_fits(arrived: list[Entry]) -> bool:
    """Whether one of these who still waits could start if it were alone."""
    for entry in arrived:
        if entry.waiting and entry.amounts[0] <= entry.line.resources[0].free:
            wanted = zip(entry.line.resources, entry.amounts, strict=True)
            if len(entry.amounts) == 1 or all(amount <= resource.free for resource, amount in wanted):
                return True
    return False


def _walk(current: Pass, depth: int) -> list[Start]:
    """The definition, over the first `depth` who wait."""
    for entry in islice(current.state.waiting, depth):
        if not current.admit(entry) and not current.is_reserved(entry):
            current.reserve(entry)
    return current.starts


def _fill(current: Pass, lines: list[Line]) -> list[Start]:
    """The same as a walk over everybody, but once a line is reserved only the first of each size and limit counts."""
    heads: list[tuple[int, Entry, Iterator[Entry], bool]] = []  # order, job, those behind it, one bucket only
    for line in lines:
        entries = iter(line)
        first = next(entries)
        heads.append((first.order, first, entries, False))
    heapify(heads)
    while heads:
        order, entry, entries, is_bucket = heappop(heads)
        if not is_bucket and current.is_reserved(entry):  # by a job of another line
            for head in _buckets(current, entry.line, order - 1):
                heappush(heads, head)
        elif current.admit(entry):
            following = next(entries, None)
            if following is not None:
                heappush(heads, (following.order, following, entries, is_bucket))
        elif not is_bucket:
            current.reserve(entry)
            for head in _buckets(current, entry.line, order):
                heappush(heads, head)
    return current.starts


def _buckets(current: Pass, line: Line, after: int) -> Iterator[tuple[int, Entry, Iterator[Entry], bool]]:
    """The first job behind `after` of each size and limit that could still start."""
    index = line.resources[0].index
    free, extra = current.free[index], current.extra[index]
    window_us = current.shadow_us[index] - current.state.now_us
    for amounts in line.fitting(free):
        limits, buckets = line.by_amounts[amounts]
        for limit_us in limits:
            if limit_us > window_us and amounts[0] > extra:
                break
            for entry in (entries := iter(buckets[limit_us])):
                if entry.order > after and entry.waiting:
                    yield entry.order, entry, (other for other in entries if other.waiting), True
                    break
    for entry in current.state.arrived:
        if entry.line is line and entry.order > after and entry.waiting:
            yield entry.order, entry, iter(()), True
