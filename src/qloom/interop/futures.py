"""A `concurrent.futures.Executor` on the nodes of a job: each call that is submitted is a task of the job.

Futures work with `wait`, `as_completed` and `map`. They end while the program waits for one of them: whoever waits
asks the job, so that in virtual time nothing blocks the event loop. `concurrent.futures` waits on a condition of a
future and on an event that it appends to the future's waiters; both are replaced here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from qloom.errors import InputError
from qloom.model import Task, TaskFunction, call

NEEDS = ("expected_s", "cpus", "memory_mb", "nodes", "ranks", "retries", "time_limit_s")  # of a task


class StartedCalls(Protocol):
    """What an executor uses of a synchronous program's job: classical calls, by number."""

    @property
    def nodes(self) -> int:
        """How many nodes the job may hold."""

    def start(self, task: Task) -> int:
        """Start a task; returns the number of its call."""

    def wait_any(self, calls: Sequence[int], timeout_s: float | None) -> tuple[list[int], float]:
        """Wait until one of the calls has ended; returns those that have, and how long it took by the job's clock."""

    def result(self, number: int) -> Any:
        """The result of a call that has ended, or what it raised."""

    def cancel(self, number: int) -> None:
        """End a call."""


class OpenFutures:
    """The futures of one job that have not ended."""

    def __init__(self, calls: StartedCalls) -> None:
        self.calls = calls
        self._open: dict[int, JobFuture] = {}

    def add(self, task: Task) -> JobFuture:
        """Start a task."""
        future = JobFuture(self, self.calls.start(task))
        self._open[future.number] = future
        return future

    def take(self, future: JobFuture) -> bool:
        """Give up a future; False if it has ended, or another thread is about to end it."""
        return self._open.pop(future.number, None) is not None

    def advance(self, timeout_s: float | None, only: JobFuture | None = None) -> float | None:
        """Wait until a call ends, and end its future; returns the seconds waited, infinity if the time was up.

        None says that there is nothing to wait for. With `only`, no other future counts.
        """
        numbers = [number for number in list(self._open) if only is None or number == only.number]
        if not numbers:
            return None
        ended, waited_s = self.calls.wait_any(numbers, timeout_s)
        for number in ended:
            self._end(number)
        return waited_s if ended else math.inf

    def _end(self, number: int) -> None:
        future = self._open.pop(number, None)
        if future is None:  # another thread was faster
            return
        try:
            how, value = self.calls.result(number)[0]
        except asyncio.CancelledError:  # the run is cancelled
            future.give_up()
            raise
        except Exception as error:
            future.set_exception(error)
        else:
            if how == RAISED:
                future.set_exception(value)
            else:
                future.set_result(value)


class JobFuture(concurrent.futures.Future[Any]):
    """A call on a node. It ends when the program waits for it, or for others of its job."""

    def __init__(self, futures: OpenFutures, number: int) -> None:
        super().__init__()
        self._futures = futures
        self._waiters = _Waiters(futures)
        self.number = number

    def __hash__(self) -> int:
        """Sets of futures are in the order in which they were submitted, in every run."""
        return self.number

    def result(self, timeout: float | None = None) -> Any:
        """Wait for what the function returns, or raise what it raises."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for what the function raises; None if it returns."""
        self._wait(timeout)
        return super().exception(0)

    def done(self) -> bool:
        """Whether the call has ended. In virtual time a loop around this never ends: no time passes in it."""
        if not super().done():
            self._futures.advance(0.0, only=self)
        return super().done()

    def running(self) -> bool:
        """Whether the call waits for a node or runs on one."""
        return not self.done()

    def cancel(self) -> bool:
        """End the call; whether it had not ended before."""
        if not self._futures.take(self):
            return self.cancelled()
        self._futures.calls.cancel(self.number)
        self.give_up()
        return True

    def give_up(self) -> None:
        """Count as cancelled."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def _wait(self, timeout_s: float | None) -> None:
        left_s = timeout_s
        while not super().done():
            waited_s = self._futures.advance(left_s)
            if waited_s is None:  # another thread has its result
                super().exception(left_s)
            elif left_s is not None:
                left_s -= waited_s
                if left_s <= 0 and not super().done():
                    raise TimeoutError

    def __reduce__(self) -> NoReturn:
        raise InputError("a future is of this process alone", hint="pass on its result()")


class _Waiters(list[Any]):
    """Those who wait for a future: their event asks the job."""

    def __init__(self, futures: OpenFutures) -> None:
        super().__init__()
        self._futures = futures

    def append(self, waiter: Any) -> None:
        if not isinstance(waiter.event, _AskingEvent):
            raises = isinstance(waiter, concurrent.futures._base._AsCompletedWaiter)
            waiter.event = _AskingEvent(self._futures, raises=raises)
        super().append(waiter)


class _AskingEvent(threading.Event):
    """An event that is set by the end of a call: waiting for it is waiting for a call.

    With `raises`, the first wait says how long all of them may take together, by the clock of the job: `as_completed`
    itself looks at the time of day.
    """

    def __init__(self, futures: OpenFutures, *, raises: bool) -> None:
        super().__init__()
        self._futures = futures
        self._raises = raises
        self._left_s: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        if not self._raises or self._left_s is None:
            self._left_s = timeout
        while not self.is_set():
            waited_s = self._futures.advance(self._left_s)
            if waited_s is None:  # other threads, or executors of others, will set it
                return super().wait(self._left_s)
            if self._left_s is not None:
                self._left_s -= waited_s
                if self._left_s <= 0:
                    break
        if self._raises and not self.is_set():
            raise TimeoutError
        return self.is_set()


class JobExecutor(concurrent.futures.Executor):
    """Runs calls as tasks of a job; `needs` are those of each task: `expected_s`, `cpus`, `retries`, ..."""

    def __init__(self, futures: OpenFutures, needs: dict[str, Any]) -> None:
        self._futures = futures
        self._needs = needs
        self._submitted: list[JobFuture] = []
        self._is_shut_down = False
        for name in needs:
            if name not in NEEDS:
                hint = f"{', '.join(NEEDS[:-1])} and {NEEDS[-1]}"
                raise InputError(f"an executor has no option {name!r}", hint=hint)
        call(len).needs(**needs)  # refused here rather than with the first task

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> JobFuture:
        """Run `function(*args, **kwargs)` on a node."""
        return self.submit_as(None, function, *args, **kwargs)

    def submit_as(self, name: str | None, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> JobFuture:
        """The same, with a name for the task."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._submitted = [future for future in self._submitted if not concurrent.futures.Future.done(future)]
        task = _attempting(name, function, args, kwargs)
        self._submitted.append(self._futures.add(task.needs(**self._needs)))
        return self._submitted[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for those that were submitted, or cancel them."""
        self._is_shut_down = True
        if cancel_futures:
            for future in self._submitted:
                future.cancel()
        if wait:
            concurrent.futures.wait(self._submitted)


# On a node

RETURNED, RAISED = "returned", "raised"


def _attempting(
    name: str | None, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Task:
    """A task whose result says what the function raised: a future raises the same, as other executors have it."""
    described = function(*args, **kwargs) if isinstance(function, TaskFunction) else call(function)
    plain = function.function if isinstance(function, TaskFunction) else function
    instead = None if described.stand_in is None else functools.partial(attempt, described.stand_in)
    return Task(
        name or described.name,
        functools.partial(attempt, plain),
        args,
        kwargs,
        nodes=described.nodes,
        cpus=described.cpus,
        memory_mb=described.memory_mb,
        ranks=described.ranks,
        expected_s=described.expected_s,
        stand_in=instead,
        retries=described.retries,
        time_limit_s=described.time_limit_s,
    )


def attempt(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[str, Any]:
    """Call a function on a node; what it raises is a result too."""
    try:
        return RETURNED, function(*args, **kwargs)
    except Exception as error:
        return RAISED, error
