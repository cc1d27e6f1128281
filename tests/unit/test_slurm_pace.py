"""How often a run may call Slurm, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from qloom.errors import InputError
from qloom.journal.events import RunStarted, SlurmThrottled
from qloom.site import site_from
from qloom.slurm.client import Pace, Urgency
from qloom.slurm.salloc import Salloc
from qloom.views.explain import explain
from qloom.worlds.virtual.loop import VirtualLoop


def run(coroutine):
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


async def turns(pace, *urgencies):
    """Who came, and when."""
    loop, came = asyncio.get_running_loop(), []

    async def call(number, urgency):
        await pace.turn(urgency)
        came.append((number, round(loop.time(), 3)))

    await asyncio.gather(*(call(number, urgency) for number, urgency in enumerate(urgencies)))
    return came


def test_a_burst_comes_at_once_and_the_rest_at_the_pace():
    told = []
    came = run(turns(Pace(2.0, lambda: told.append(1)), *[Urgency.ASK] * 24))
    assert [at_s for _, at_s in came] == [0.0] * 20 + [0.5, 1.0, 1.5, 2.0]
    assert told == [1]  # once


def test_what_gives_back_goes_before_what_asks():
    urgencies = [Urgency.ASK] * 12 + [Urgency.USE, Urgency.RELEASE]
    came = run(turns(Pace(1.0, lambda: None), *urgencies))
    assert [number for number, _ in came[10:]] == [13, 12, 10, 11]


def test_a_pause_fills_the_bucket_again_and_no_more_than_that():
    async def main():
        pace = Pace(1.0, lambda: None)
        await turns(pace, *[Urgency.ASK] * 10)
        await asyncio.sleep(1000)
        return await turns(pace, *[Urgency.ASK] * 11)

    assert [at_s for _, at_s in run(main())] == [1000.0] * 10 + [1001.0]


def test_any_ten_seconds_see_no_more_than_twenty_seconds_worth():
    async def main():
        pace, loop, came = Pace(5.0, lambda: None), asyncio.get_running_loop(), []
        for _ in range(300):
            await pace.turn(Urgency.ASK)
            came.append(loop.time())
            await asyncio.sleep(0.01)
        return came

    came = run(main())
    assert max(sum(begin <= at_s < begin + 10 for at_s in came) for begin in came) <= 5 * 20 + 1


def test_a_turn_that_is_cancelled_costs_nothing():
    async def main():
        pace = Pace(1.0, lambda: None)
        await turns(pace, *[Urgency.ASK] * 10)
        for turn in [pace.turn(Urgency.ASK) for _ in range(5)]:
            turn.cancel()
        return await turns(pace, Urgency.ASK)

    assert run(main()) == [(0, 1.0)]


class Throttled:
    """A client whose turn never comes."""

    calls = 0

    def turn(self, _urgency):
        return asyncio.get_running_loop().create_future()


def test_a_request_that_is_withdrawn_before_its_turn_never_reaches_slurm():
    async def main():
        client = Throttled()
        asked = Salloc(client, ["salloc"], "name", lambda: True)
        granted = asyncio.ensure_future(asked.granted())
        await asyncio.sleep(0)
        asked.withdraw()
        return await granted, client.calls

    assert run(main()) == (None, 0)


@pytest.mark.parametrize("most", [0, -1, float("inf"), float("nan")])
def test_a_limit_is_a_number_above_0(most):
    with pytest.raises(InputError, match=r"slurm\.most_calls_per_s must be a number above 0"):
        site_from({"slurm": {"most_calls_per_s": most}})


def test_explain_says_once_that_a_run_is_slowed_down():
    throttled = [SlurmThrottled(at_us=at_us, most_calls_per_s=2.0) for at_us in (3_000_000, 9_000_000)]
    lines = explain([RunStarted(jobs=1), *throttled], alive=True)
    assert [line for line in lines if "Slurm" in line] == [
        "at 3.0 s it called Slurm too often; from then on it is held to 2 calls a second"
    ]
