"""Virtual time: order, deadlines, what is refused, and how a deadlock is told."""

from __future__ import annotations

import asyncio
import contextvars

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from qloom.errors import Deadlock
from qloom.worlds.virtual.loop import VirtualClock, VirtualLoop

SECONDS = some.integers(0, 5).map(lambda number: number / 2)


@pytest.fixture
def loop():
    made = VirtualLoop()
    yield made
    made.close()


def run(coroutine):
    made = VirtualLoop()
    try:
        return made.run_until_complete(coroutine)
    finally:
        made.close()


def test_time_jumps(loop):
    async def year():
        await asyncio.sleep(365 * 86400)

    loop.run_until_complete(year())
    assert loop.now_us == 365 * 86400 * 10**6


def test_time_is_whole_microseconds(loop):
    clock = VirtualClock(loop)

    async def third():
        for _ in range(3):
            await clock.sleep(1 / 3)

    loop.run_until_complete(third())
    assert loop.now_us == 999_999
    assert type(loop.now_us) is int
    assert clock.now_us() == loop.now_us


def test_equal_times_wake_in_the_order_they_were_set(loop):
    clock = VirtualClock(loop)
    woken = []

    async def sleeper(name, seconds, ways):
        await ways(seconds)
        woken.append(name)

    async def main():
        ways = [asyncio.sleep, clock.sleep]
        await asyncio.gather(*(sleeper(number, 1.0, ways[number % 2]) for number in range(20)))

    loop.run_until_complete(main())
    assert woken == list(range(20))


@settings(deadline=None)
@given(some.lists(SECONDS, max_size=30))
def test_timers_fire_by_time_and_then_by_order(times):
    loop = VirtualLoop()
    fired = []

    async def main():
        for number, seconds in enumerate(times):
            loop.call_later(seconds, lambda place=(seconds, number): fired.append((loop.time(), *place)))
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert [(at, number) for at, _, number in fired] == sorted((s, n) for n, s in enumerate(times))
    assert all(at == seconds for at, seconds, _ in fired)


def test_a_deadline_comes_after_all_else_at_its_instant_and_what_that_leads_to(loop):
    """Who is granted something in the last instant has it, even if the deadline was set first."""
    clock = VirtualClock(loop)
    seen = []

    async def main():
        clock.deadline(1.0, lambda: seen.append("deadline"))
        event = asyncio.Event()

        async def chain():
            await event.wait()
            seen.append("woken")
            await asyncio.sleep(0)
            await clock.sleep(0)
            await asyncio.sleep(0.0)
            seen.append("after three more steps at the same instant")

        waiting = asyncio.ensure_future(chain())
        await clock.sleep(1.0)
        seen.append("slept")
        event.set()
        await waiting
        assert loop.now_us == 1_000_000
        await clock.sleep(0.5)

    loop.run_until_complete(main())
    assert seen == ["slept", "woken", "after three more steps at the same instant", "deadline"]


def test_deadlines_fire_in_order_and_can_be_cancelled(loop):
    clock = VirtualClock(loop)
    seen = []

    async def main():
        clock.deadline(1.0, lambda: seen.append("first"))
        cancel = clock.deadline(1.0, lambda: seen.append("never"))
        clock.deadline(1.0, lambda: seen.append("last"))
        cancel()
        await clock.sleep(2.0)

    loop.run_until_complete(main())
    assert seen == ["first", "last"]


def test_cancelled_timers_do_not_move_time(loop):
    clock = VirtualClock(loop)

    async def main():
        handle = loop.call_later(100, lambda: None)
        sleeping = asyncio.ensure_future(asyncio.sleep(200))
        also = asyncio.ensure_future(clock.sleep(300))
        await asyncio.sleep(1)
        handle.cancel()
        assert handle.cancelled()
        sleeping.cancel()
        also.cancel()
        await asyncio.sleep(2)
        return loop.time()

    assert loop.run_until_complete(main()) == 3.0
    assert loop.now_us == 3_000_000


def test_a_deadlock_is_found_at_once_even_if_cancelled_timers_are_left(loop):
    async def main():
        loop.call_later(1000, lambda: None).cancel()
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="nothing is left to happen"):
        loop.run_until_complete(main())
    assert loop.now_us == 0


def test_what_programs_use_of_asyncio_works():
    async def main():
        loop = asyncio.get_running_loop()
        lock, semaphore, queue, event = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Queue(1), asyncio.Event()
        order = []

        async def locked(name):
            async with lock, semaphore:
                await asyncio.sleep(1)
                order.append((name, loop.time()))

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(locked(name))
        assert order == [("a", 1.0), ("b", 2.0), ("c", 3.0)]

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await event.wait()
        assert loop.time() == 5.0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(9), 1)
        async with asyncio.timeout(2):
            await asyncio.sleep(1.5)
        assert loop.time() == 7.5

        async def produce():
            for number in range(3):
                await queue.put(number)

        producing = asyncio.create_task(produce())
        assert [await queue.get() for _ in range(3)] == [0, 1, 2]
        await producing
        loop.call_later(1, event.set)
        await event.wait()
        assert await asyncio.gather(asyncio.sleep(2, "x"), asyncio.sleep(1, "y")) == ["x", "y"]
        first = await asyncio.wait(
            [asyncio.ensure_future(asyncio.sleep(n)) for n in (1, 5)], return_when=asyncio.FIRST_COMPLETED
        )
        assert len(first[0]) == 1
        done = [await ended for ended in asyncio.as_completed([asyncio.sleep(2, "late"), asyncio.sleep(1, "early")])]
        assert done == ["early", "late"]
        results = await asyncio.gather(asyncio.shield(asyncio.sleep(1, 1)), failing(), return_exceptions=True)
        assert [type(result) for result in results] == [int, KeyError]
        return loop.time()

    async def failing():
        await asyncio.sleep(0.5)
        raise KeyError("x")

    assert run(main()) == pytest.approx(14.5)


def test_context_variables_stay_with_their_task():
    """Even where the context is empty, as at the top of a script, a task does not see what another one set."""
    variable = contextvars.ContextVar("variable", default="mine")

    async def main():
        event = asyncio.Event()

        async def other():
            variable.set("other's")
            await asyncio.sleep(1)
            event.set()
            return variable.get()

        running = asyncio.create_task(other())
        await event.wait()
        assert await running == "other's"
        seen = variable.get()
        variable.set("changed")
        await asyncio.sleep(1)
        return seen, variable.get()

    assert contextvars.Context().run(run, main()) == ("mine", "changed")


@pytest.mark.parametrize(
    "outside",
    [
        lambda: asyncio.to_thread(print),
        lambda: asyncio.get_running_loop().run_in_executor(None, print),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.create_subprocess_shell("true"),
        lambda: asyncio.open_connection("localhost", 1),
        lambda: asyncio.start_server(print, "localhost", 1),
        lambda: asyncio.open_unix_connection("/x"),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
        lambda: asyncio.get_running_loop().add_signal_handler(2, print),
        lambda: asyncio.get_running_loop().add_reader(0, print),
        lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
    ],
)
def test_nothing_outside_can_be_reached(outside):
    async def main():
        found = outside()
        if found is not None:
            await found

    with pytest.raises(RuntimeError, match="not possible in virtual time: a program may only await its job"):
        run(main())


def test_it_cannot_run_for_ever(loop):
    with pytest.raises(RuntimeError, match="until something is complete"):
        loop.run_forever()


def test_a_deadlock_says_who_waits(loop):
    VirtualClock(loop).explain_with(lambda: ["job j1 waits for 3 nodes", "job j2 waits for QPU q"])

    async def main():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="job j1 waits for 3 nodes; job j2 waits for QPU q"):
        loop.run_until_complete(main())


def test_at_its_limit_the_loop_says_who_waits_although_timers_go_on(loop):
    clock = VirtualClock(loop)
    clock.explain_with(lambda: ["job j1 waits for QPU q"])
    clock.limit(100.0)

    async def main():
        while True:
            await clock.sleep(1.0)

    with pytest.raises(Deadlock, match="not done after 100 s: job j1 waits for QPU q"):
        loop.run_until_complete(main())
    assert loop.now_us == 100_000_000


def test_a_program_that_waits_for_itself_is_told_so(loop):
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits for itself"):
        loop.run_until_complete(main())


def test_after_a_deadlock_everything_is_cleaned_up(loop):
    ended = []

    async def waits(name):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)  # giving things back takes time
            ended.append(name)

    async def main():
        await asyncio.gather(waits("a"), waits("b"))

    with pytest.raises(Deadlock):
        loop.run_until_complete(main())
    assert ended == ["a", "b"]
    assert not asyncio.all_tasks(loop)


def test_an_exception_comes_out(loop):
    async def main():
        await asyncio.sleep(1)
        raise ValueError("in the program")

    with pytest.raises(ValueError, match="in the program"):
        loop.run_until_complete(main())
    assert not loop.is_running()


def test_leftover_tasks_are_cancelled(loop):
    seen = []

    async def background():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            seen.append(loop.time())
            raise

    async def main():
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        return task

    task = loop.run_until_complete(main())
    assert task.cancelled()
    assert seen == [1.0], "time does not go on for what nobody awaits"


def test_a_virtual_loop_inside_a_real_one_leaves_that_alone():
    async def outer():
        async def inner():
            await asyncio.sleep(5)
            return asyncio.get_running_loop()

        virtual = VirtualLoop()
        here = asyncio.get_running_loop()
        assert virtual.run_until_complete(inner()) is virtual
        virtual.close()
        return here is asyncio.get_running_loop()

    assert asyncio.run(outer())
