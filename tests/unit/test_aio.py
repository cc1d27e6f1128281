"""Tasks have owners: none outlives its scope, and no failure is lost, in real time as in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qloom.aio import TaskScope, finish, gather_or_cancel, run_to_end
from qloom.worlds.virtual.loop import VirtualLoop

Runner = Callable[[Coroutine[Any, Any, Any]], Any]


def in_virtual_time(main: Coroutine[Any, Any, Any]) -> Any:
    return VirtualLoop().run_until_complete(main)  # type: ignore[abstract]


@pytest.fixture(params=[asyncio.run, in_virtual_time], ids=["real", "virtual"])
def run(request: pytest.FixtureRequest) -> Runner:
    return request.param


async def fail(message: str, after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    raise ValueError(message)


async def note(log: list[str], name: str, seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(0.001)  # cleaning up takes time
        log.append(f"{name} cancelled")
        raise
    log.append(f"{name} done")
    return name


def test_a_scope_outlives_its_tasks(run: Runner) -> None:
    async def main() -> list[str]:
        log: list[str] = []
        scope = TaskScope()
        first, _second = scope.start(note(log, "first", 0.001)), scope.spawn(note(log, "second", 60))
        assert await first == "first"
        await asyncio.sleep(0)
        assert len(scope) == 1
        await scope.aclose()
        assert len(scope) == 0
        return log

    assert run(main()) == ["first done", "second cancelled"]


def test_what_is_started_while_a_scope_closes_ends_too(run: Runner) -> None:
    async def main() -> list[str]:
        log: list[str] = []
        scope = TaskScope()

        async def leave_another() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                scope.spawn(note(log, "late", 60))
                await asyncio.sleep(0)

        scope.spawn(leave_another())
        await asyncio.sleep(0)
        await scope.aclose()
        return log

    assert run(main()) == ["late cancelled"]


def test_a_closed_scope_takes_nothing_on(run: Runner) -> None:
    async def main() -> None:
        scope = TaskScope()
        await scope.aclose()
        scope.spawn(fail("never run"))

    with pytest.raises(RuntimeError, match="closed"):
        run(main())


def test_a_failure_in_the_background_is_raised_at_the_end(run: Runner) -> None:
    async def main() -> None:
        scope = TaskScope()
        scope.spawn(fail("lost?"))
        await asyncio.sleep(0.001)
        await scope.aclose()

    with pytest.raises(ValueError, match="lost"):
        run(main())


def test_several_failures_are_raised_together(run: Runner) -> None:
    async def main() -> None:
        scope = TaskScope()
        scope.spawn(fail("one", 0.002))
        scope.spawn(fail("two", 0.001))
        await scope.join()

    with pytest.raises(BaseExceptionGroup) as raised:
        run(main())
    assert [str(failure) for failure in raised.value.exceptions] == ["two", "one"]


def test_an_owner_may_be_notified_at_once(run: Runner) -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        scope = TaskScope(on_failure=lambda failure: seen.append(str(failure)))
        scope.spawn(fail("at once"))
        await asyncio.sleep(0.001)
        assert seen == ["at once"]
        await scope.aclose()
        return seen

    assert run(main()) == ["at once"]


def test_a_failure_that_somebody_awaits_is_raised_there_alone(run: Runner) -> None:
    async def main() -> None:
        scope = TaskScope()
        with pytest.raises(ValueError, match="awaited"):
            await scope.start(fail("awaited"))
        await scope.aclose()

    run(main())


def test_closing_goes_on_when_the_caller_is_cancelled(run: Runner) -> None:
    async def main() -> list[str]:
        log: list[str] = []
        scope = TaskScope()
        scope.spawn(note(log, "work", 60))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(scope.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        return log

    assert run(main()) == ["work cancelled"]


@pytest.mark.parametrize("way", ["finish", "run_to_end"])
def test_work_reaches_its_end_although_its_caller_is_cancelled(run: Runner, way: str) -> None:
    async def main() -> list[str]:
        log: list[str] = []
        work = note(log, "work", 0.002)
        caller = asyncio.ensure_future(
            run_to_end(work) if way == "run_to_end" else finish(asyncio.ensure_future(work))
        )
        for _ in range(3):
            await asyncio.sleep(0)
            caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        return log

    assert run(main()) == ["work done"]


def test_work_to_the_end_raises_its_failure(run: Runner) -> None:
    with pytest.raises(ValueError, match="cleaning"):
        run(run_to_end(fail("cleaning up")))


def test_the_first_failure_cancels_the_others(run: Runner) -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="first"):
        run(gather_or_cancel([note(log, "slow", 60), fail("first", 0.001), note(log, "slower", 61)]))
    assert log == ["slow cancelled", "slower cancelled"]


def test_all_results_come_in_the_order_of_the_calls(run: Runner) -> None:
    log: list[str] = []
    assert run(gather_or_cancel([note(log, "a", 0.002), note(log, "b", 0.001)])) == ["a", "b"]
    assert log == ["b done", "a done"]
    assert run(gather_or_cancel([])) == []
