"""What `weave` learns from journals, and what it leaves in them."""

from __future__ import annotations

import asyncio

import pytest

import qloom
from qloom import delay, task
from qloom.errors import InputError
from qloom.journal.event import event_from
from qloom.journal.file import read_events
from qloom.journal.history import read_history
from qloom.ports import Prediction
from qloom.site import Overheads, Site
from qloom.strategies.weaving.share import EarlyShare
from qloom.views.accounting import account
from qloom.views.forecast import Forecaster
from tests.journals import as_lines


class StoppedClock:
    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def now_us(self) -> int:
        return round(self.now_s * 1e6)


def learned(*events: tuple[float, str, dict]) -> Forecaster:
    forecaster = Forecaster(StoppedClock())
    for at_s, event, fields in events:
        forecaster.observe(event_from({"at_us": round(at_s * 1e6), "event": event, "job": "j1", **fields}))
    return forecaster


def ran(*seconds: float) -> list[tuple[float, str, dict]]:
    """Tasks of these lengths, one after another."""
    events, at_s = [], 0.0
    for number, length_s in enumerate(seconds):
        events.append((at_s, "task_started", {"work": str(number), "name": "kmeans", "nodes": ["n1"]}))
        at_s += length_s
        events.append((at_s, "task_ended", {"work": str(number), "state": "done"}))
    return events


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((10.0,), Prediction(10.0, 1 / 2)),
        ((10.0, 10.0, 10.0, 10.0), Prediction(10.0, 4 / 5)),
        ((10.0, 11.0, 12.0), Prediction(11.0, 3 / 4)),
        ((1.0, 10.0, 100.0), Prediction(10.0, 1 / 4)),
    ],
)
def test_a_prediction_is_the_median_and_says_how_sure_it_is(seconds, expected):
    assert learned(*ran(*seconds)).of("j2").task_s("kmeans") == expected


def test_nothing_is_predicted_of_what_was_never_seen():
    forecast = learned(*ran(10.0)).of("j1")
    assert forecast.task_s("dbscan") is None
    assert forecast.quantum_left_s() is None
    assert forecast.node_wait_s() is None
    assert forecast.spare_use() == 1.0


def test_an_awaited_quantum_result_is_expected_as_soon_as_it_could_be_there():
    queued = {"work": "q2", "name": "quantum", "device": "qpu", "hold": "share"}
    forecaster = learned(
        (0.0, "quantum_queued", {**queued, "work": "q1"}),
        (5.0, "quantum_started", {"work": "q1", "device": "qpu"}),
        (25.0, "quantum_ended", {"work": "q1", "state": "done"}),
        (30.0, "quantum_queued", queued),
    )
    forecast = forecaster.of("j1")
    forecaster.clock.now_s = 60.0
    assert forecast.quantum_left_s().value == 20.0, "it is still queued: it may begin now"
    forecaster.observe(
        event_from({"at_us": 60_000_000, "event": "quantum_started", "job": "j1", "work": "q2", "device": "qpu"})
    )
    forecaster.clock.now_s = 65.0
    assert forecast.quantum_left_s() == Prediction(15.0, 0.5)
    assert forecast.scaled(3.0).quantum_left_s() == Prediction(55.0, 0.5)
    assert forecaster.of("j2").quantum_left_s() is None, "another job awaits nothing"


def test_spare_work_that_nobody_asked_for_lowers_the_trust_in_the_next():
    forecaster = learned(
        (0.0, "speculated", {"works": ["a", "b"]}),
        (7.0, "claimed", {"work": "a"}),
        (8.0, "task_started", {"work": "b", "name": "kmeans", "nodes": ["n1"]}),  # not begun in time, but needed
    )
    forecast = forecaster.of("j1")
    assert forecast.spare_use() == 1.0
    assert forecast.spare_ahead_s().value == 7.5
    for _ in range(2):
        forecaster.observe(event_from({"at_us": 9_000_000, "event": "speculated", "job": "j1", "works": ["c", "d"]}))
    assert forecast.spare_use() == 3 / 5


@task(expected_s=20.0)
def score(number: int) -> int:
    return number


async def loop(job, *, iterations: int = 4) -> list[int]:
    seen = []
    for number in range(iterations):
        await job.quantum(delay(60.0))
        seen += await job.classical(score(number))
    return seen


SLOW = Site(overheads=Overheads(submit_s=4.0))


def early_requests(events):
    return [event for event in as_lines(events) if event["event"] == "requested" and "reason" in event]


def test_nodes_are_asked_for_before_the_result_is_there_and_the_journal_says_why():
    events = qloom.run(loop, strategy="weave", world="virtual", site=SLOW, in_memory=True).events
    early = early_requests(events)
    assert len(early) == 3, "nothing was known of the first quantum task"
    ended_us = [event["at_us"] for event in as_lines(events) if event["event"] == "quantum_ended"]
    for request, at_us in zip(early, ended_us[1:], strict=True):
        assert request["at_us"] < at_us
    assert early[0]["reason"] == "a quantum result is expected in 4.0 s (confidence 0.50)"
    late = qloom.run(loop, strategy="weave", options={"ask_early": 0}, world="virtual", site=SLOW, in_memory=True)
    ends_us = [max(interval.end_us for interval in read_history(these).intervals) for these in (events, late.events)]
    assert (ends_us[1] - ends_us[0]) / 1e6 == pytest.approx(3 * 4.0 + 3 * 2.0, abs=0.1), (
        "each node, and a share as early as a tenth of a task"
    )


def test_an_earlier_run_is_learned_from():
    earlier = qloom.run(__file__ + ":loop", strategy="weave", world="virtual", site=SLOW)
    again = qloom.run(
        __file__ + ":loop", strategy="weave", world="virtual", site=SLOW, profile=str(earlier.directory)
    )
    assert len(early_requests(read_events(again.directory))) == 4


def test_the_time_in_slurm_s_queue_is_a_wait_that_is_learned():
    events = [
        (0.0, "run_started", {}),
        (1.0, "run_ended", {"state": "handed on", "engine_id": "7"}),
        (21.0, "resumed", {"engine_id": "7"}),
        (21.0, "requested", {"job": "j1", "lease": "j1.1", "nodes": 1}),
        (21.0, "granted", {"job": "j1", "lease": "j1.1", "nodes": ["n1"]}),
    ]
    forecaster = Forecaster(StoppedClock())
    lines = ({"at_us": round(at_s * 1e6), "event": event, **fields} for at_s, event, fields in events)
    forecaster.learn([event_from(line) for line in lines])
    assert forecaster.of("j1").node_wait_s() == Prediction(20.0, 1 / 2)


def test_a_node_is_held_only_while_a_task_runs_on_it():
    used = account(read_history(qloom.run(loop, strategy="weave", world="virtual", in_memory=True).events))
    assert used.node_s_busy == pytest.approx(80.0)
    assert used.node_s_held == pytest.approx(80.0, abs=0.5)
    assert used.qpu_s_busy == used.vqpu_s_held == pytest.approx(240.0)


async def classical_first(job, *, quantum_s: float = 60.0, nodes: int = 1) -> None:
    for number in range(4):
        await job.classical(score(number).needs(nodes=nodes))
        await job.quantum(delay(quantum_s))
    await job.classical(score(4).needs(nodes=nodes))


CROWDED = Site(overheads=Overheads(submit_s=300.0))  # nodes take five minutes to come


def used_when_crowded(**parameters):
    outcome = qloom.run(
        classical_first, strategy="weave+task", world="virtual", site=CROWDED, in_memory=True, parameters=parameters
    )
    requests = [event for event in as_lines(outcome.events) if event["event"] == "requested" and event["nodes"]]
    return account(read_history(outcome.events)), len(requests)


def test_where_nodes_take_long_to_come_one_is_kept_through_a_quantum_phase():
    used, requests = used_when_crowded()
    assert requests == 1
    assert used.node_s_held - used.node_s_busy == pytest.approx(4 * 60.0, abs=2.0)


def test_several_nodes_of_one_task_are_not_kept():
    used, requests = used_when_crowded(nodes=2, quantum_s=400.0)
    assert requests == 5
    assert used.node_s_held == pytest.approx(used.node_s_busy, abs=2.0)


def test_a_quantum_phase_that_takes_longer_than_getting_a_node_keeps_none_once_that_is_known():
    used, requests = used_when_crowded(quantum_s=1000.0)
    assert requests == 5
    assert used.node_s_held - used.node_s_busy == pytest.approx(300.0, abs=2.0), (
        "in the first, of which nothing is known"
    )


def test_jobs_that_wait_for_the_qpu_longer_than_for_nodes_keep_none():
    """Each would make nodes scarcer for the others, and that would be a reason to keep more."""
    site = Site(nodes=3, overheads=Overheads(submit_s=2.0))
    outcome = qloom.run(classical_first, strategy="weave", world="virtual", site=site, jobs=20, in_memory=True)
    used = account(read_history(outcome.events))
    assert used.node_s_held < 2 * used.node_s_busy, "in the first phase, of which nothing is known"


def test_useless_spare_work_is_no_longer_run():
    async def program(job):
        for number in range(5):
            job.speculate(score(1000 + number))
            await job.quantum(delay(60.0))

    events = qloom.run(program, strategy="weave", world="virtual", in_memory=True).events
    assert [event["spare"] for event in as_lines(events) if event["event"] == "task_started"] == [True, True]


def test_an_option_out_of_range_is_refused():
    with pytest.raises(InputError, match="confidence must be from 0 to 1, not 7"):
        qloom.run(loop, strategy="weave", options={"confidence": 7}, world="virtual", in_memory=True)


def test_an_unknown_option_is_refused():
    with pytest.raises(InputError, match="no option 'speed'"):
        qloom.run(loop, strategy="weave", options={"speed": 1}, world="virtual", in_memory=True)


def test_a_share_that_comes_as_its_taker_is_cancelled_is_given_back():
    class Held:
        released = False

        async def release(self) -> None:
            self.released = True

    async def scenario() -> Held:
        held, granted = Held(), asyncio.Event()

        async def ask() -> Held:
            asyncio.current_task().add_done_callback(lambda _: taking.cancel())  # before who waits for it wakes up
            await granted.wait()
            return held

        async def take() -> Held:
            return await share.take()

        share = EarlyShare(ask)
        keeping = asyncio.ensure_future(share.keep(60.0))
        await asyncio.sleep(0)
        taking = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        granted.set()
        await asyncio.wait([taking])
        assert taking.cancelled()
        keeping.cancel()
        return held

    assert asyncio.run(scenario()).released
