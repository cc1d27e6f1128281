"""The timeline of a run that goes on becomes the timeline of the run that has ended, wherever the journal was cut."""

from __future__ import annotations

from itertools import pairwise

import pytest

import qloom
from qloom.journal.fold import RunState, fold
from qloom.views.bars import LiveBars
from qloom.views.timeline import panel


def journal(strategy):
    outcome = qloom.run("phases", strategy=strategy, world="virtual", jobs=3, in_memory=True)
    assert not outcome.errors
    return outcome.events


def as_set(bars):
    return sorted(
        (bar.row.kind, bar.row.resource, bar.kind, bar.job, bar.begin_us, bar.end_us, bar.state) for bar in bars
    )


@pytest.mark.parametrize("strategy", ["malleable", "vqpu", "workflow", "coschedule"])
@pytest.mark.parametrize("piece", [1, 7])
def test_bars_that_grew_are_the_bars_of_the_whole(strategy, piece):
    events = journal(strategy)
    whole = LiveBars(fold(events))
    whole.catch_up()
    run = RunState()
    growing = LiveBars(run)
    seen: dict[int, tuple] = {}
    for at in range(0, len(events), piece):
        for event in events[at : at + piece]:
            run.apply(event)
        changes = growing.catch_up()
        for number in changes.dropped:
            del seen[number]
        for bar in (*changes.opened, *changes.ended):
            seen[bar.number] = bar.as_list()
    lasting = [bar for bar in growing.bars() if bar.end_us != bar.begin_us]
    assert as_set(lasting) == as_set(whole.bars())
    assert seen == {bar.number: bar.as_list() for bar in growing.bars()}, "a page that follows has another timeline"
    in_use = {bar.row.number for bar in lasting}
    labels = [row.as_dict()["label"] for row in growing.rows() if row.number in in_use]
    assert labels == [row.as_dict()["label"] for row in whole.rows() if row.as_dict()["label"] in labels]


def test_rows_are_those_of_the_picture():
    events = journal("vqpu")
    bars = LiveBars(fold(events))
    bars.catch_up()
    drawn = panel(("a run", events))
    assert [row.as_dict()["label"] for row in bars.rows()] == [row.label for row in drawn.rows if row.bars]
    busy_s = sum(bar.end_s - bar.begin_s for row in drawn.rows for bar in row.bars if bar.style == "busy")
    own = [bar for bar in bars.bars() if bar.kind in ("task", "quantum")]
    assert sum((bar.end_us - bar.begin_us) / 1e6 for bar in own) == pytest.approx(busy_s)


def test_bars_that_overlap_have_lanes_of_their_own():
    bars = LiveBars(fold(journal("offload")))
    bars.catch_up()
    waits = sorted((bar.row.number, bar.lane, bar.begin_us, bar.end_us) for bar in bars.bars() if bar.kind == "wait")
    for (row, lane, _, end_us), (next_row, next_lane, begin_us, _) in pairwise(waits):
        assert (row, lane) != (next_row, next_lane) or begin_us >= end_us
