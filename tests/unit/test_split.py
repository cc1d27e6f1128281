"""The chain of split: the next sub-job stands in line behind the current one, as long as it may be needed."""

from __future__ import annotations

import asyncio
import gc

import pytest

import qloom
from qloom.errors import NeedError
from qloom.lab.load.run import Load, run_load
from qloom.lab.load.workload import Hybrid, LoadJob
from qloom.ports import Requirements
from qloom.site import Qpu, Site
from qloom.strategies.split import Split
from tests.journals import as_lines

ABOUT_LEASES = ("queued_ahead", "requested", "granted", "qpu_released", "released", "withdrawn")


def story(events):
    """What happened to the leases of a run, in order."""
    return [f"{event['event']} {event['lease']}" for event in as_lines(events) if event["event"] in ABOUT_LEASES]


def test_the_next_sub_job_is_queued_at_once_eligible_after_the_current_one_and_withdrawn_if_there_is_no_more_block():
    outcome = qloom.run("phases", world="virtual", strategy="split", parameters={"iterations": 1}, in_memory=True)
    assert story(outcome.events) == [
        "requested j1.1",
        "granted j1.1",
        "queued_ahead j1.2",
        "released j1.1",
        "requested j1.2",
        "granted j1.2",
        "queued_ahead j1.3",
        "qpu_released j1.2",
        "withdrawn j1.3",
        "released j1.2",
    ]
    ahead = {event["lease"]: event["after"] for event in as_lines(outcome.events) if event["event"] == "queued_ahead"}
    assert ahead == {"j1.2": "j1.1", "j1.3": "j1.2"}


def test_without_look_ahead_a_sub_job_is_asked_for_when_its_block_begins():
    outcome = qloom.run(
        "phases",
        world="virtual",
        strategy="split",
        parameters={"iterations": 1},
        options={"lookahead": 0},
        in_memory=True,
    )
    assert story(outcome.events) == [
        "requested j1.1",
        "granted j1.1",
        "released j1.1",
        "requested j1.2",
        "granted j1.2",
        "qpu_released j1.2",
        "released j1.2",
    ]


class Subjob:
    """An allocation that counts its ends."""

    def __init__(self):
        self.ends = 0

    async def release(self):
        self.ends += 1

    async def release_qpu(self):
        pass

    def run(self, work):
        raise AssertionError(f"there is no work: {work}")


class Refuses:
    """A cluster that has nodes, but no QPU until it is told that there is one."""

    def __init__(self):
        self.granted = []
        self.has_qpu = False

    async def allocate(self, need, within_s=None, *, spare=False, reason=None, after=None):
        if need.qpu is not Split.usual_qpu_hold or self.has_qpu:
            if after is not None:
                await asyncio.Event().wait()
            self.granted.append(Subjob())
            return self.granted[-1]
        raise NeedError("there is no QPU")


def with_refusals(body):
    """Run a body with a strategy on such a cluster; nothing may fail where nobody sees it."""
    unseen = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
        cluster = Refuses()
        strategy = Split(Requirements(cluster, nodes=2))  # type: ignore[arg-type]
        await strategy.classical([])
        await asyncio.sleep(0)  # the look-ahead has failed
        await body(strategy, cluster)
        await strategy.end()
        assert [subjob.ends for subjob in cluster.granted] == [1] * len(cluster.granted)
        del strategy
        gc.collect()

    asyncio.run(main())
    assert unseen == []


def test_what_cannot_be_asked_for_ahead_fails_where_the_block_begins():
    async def body(strategy, _cluster):
        with pytest.raises(NeedError, match="there is no QPU"):
            async with strategy.quantum():
                pytest.fail("the block has begun")

    with_refusals(body)


def test_what_could_not_be_asked_for_ahead_is_asked_for_again():
    async def body(strategy, cluster):
        cluster.has_qpu = True
        async with strategy.quantum():
            assert len(cluster.granted) == 2

    with_refusals(body)


def test_a_failed_look_ahead_is_no_matter_if_no_block_follows():
    async def body(_strategy, _cluster):
        pass

    with_refusals(body)


def test_in_a_loaded_cluster_too_one_sub_job_is_held_at_a_time():
    phases = Hybrid(iterations=3, classical_s=10, quantum_s=5, parts=2)
    job = LoadJob(1, 0, phases.run_s, 2, phases.run_s, hybrid=phases)
    site = Site(nodes=4, qpus=(Qpu(shares=2),))
    (record,) = run_load(Load([job], site, strategy="split", warm_up=0.0)).records
    assert record.node_s_held == pytest.approx(2 * phases.run_s)
    assert record.qpu_s_held == pytest.approx(3 * phases.quantum_s)
