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

from qloom.lab.schedulers.alone import fill_alone
from qloom.lab.schedulers.backfill import NOTHING, Backfill
from qloom.lab.schedulers.passing import Pass
from qloom.lab.schedulers.policy import Decision, Start
from qloom.lab.schedulers.state import Entry, PolicyLine, State

Head = tuple[int, Entry, Iterator[Entry], bool]  # order, job, those behind it, whether these are one bucket only


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
