"""The requests of a synchronous program, answered with the calls of its `Job`.

Whatever carries them here, a switch of greenlets, a thread or a pipe, hands over the name of a request and its
arguments. A call that was started is known by its number from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from qloom.job.job import Job
from qloom.shared import Shared


class CallServer:
    """Answers the requests of one `SyncJob`, and keeps the calls that it has started."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._calls: dict[int, asyncio.Task[Any]] = {}  # those whose handle was not asked for its result
        self._started = 0
        self._blocks: list[AbstractAsyncContextManager[None]] = []
        self.shared: dict[str, Shared] = {}  # by digest

    async def answer(self, request: str, *arguments: Any) -> Any:
        """Do what a request says; raises what the call raised."""
        if not self._job.in_real_time:
            return await self._answer(request, *arguments)
        self._job.program_time.stop()
        try:
            return await self._answer(request, *arguments)
        finally:
            self._job.program_time.start()

    async def _answer(self, request: str, *arguments: Any) -> Any:
        match request, *arguments:
            case "classical", tasks:
                return self._start(self._job.classical(*tasks))
            case "quantum", payload, options:
                return self._start(self._job.quantum(payload, **options))
            case "describe_device", kind, device:
                return self._job.describe_device(kind, device)
            case "expect_quantum", payload, device:
                self._job.expect_quantum(payload, device=device)
            case "run", *started:  # one request, and nobody has a handle
                return await self._calls.pop(await self._answer(*started))
            case "result", number:
                call = self._calls[number]
                try:
                    await self._job.before_result(call)
                    return await call
                finally:
                    if call.done():  # a loop of many calls leaves none behind
                        self._calls.pop(number, None)
            case "wait_any", numbers, timeout_s:
                return await self._wait_any(numbers, timeout_s)
            case ["nodes"]:
                return self._job.nodes
            case "done", number:
                return self._calls[number].done()
            case "cancel", number:
                self._calls[number].cancel()
            case ["enter_block"]:
                self._blocks.append(self._job.quantum_block())
                await self._blocks[-1].__aenter__()
            case "leave_block", failed:
                await self._leave_block(failed)
            case "speculate", tasks:
                self._job.speculate(*tasks)
            case "progress", done, of, note:
                self._job.progress(done, of, note)
            case "spend", seconds:
                await self._job.spend(seconds)
            case "share", value:
                shared = self._job.share(value)
                return self.shared.setdefault(shared.digest, shared)
        return None

    async def _wait_any(self, numbers: Sequence[int], timeout_s: float | None) -> tuple[list[int], float]:
        calls = [self._calls[number] for number in numbers if number in self._calls]
        began_s = asyncio.get_running_loop().time()
        if len(calls) == len(numbers):  # of the others another thread has the result
            await self._job.before_result(calls[0])
            await asyncio.wait(calls, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        ended = [number for number in numbers if number not in self._calls or self._calls[number].done()]
        return ended, asyncio.get_running_loop().time() - began_s

    async def _leave_block(self, failed: bool) -> None:
        block = self._blocks.pop()
        if not failed:
            await block.__aexit__(None, None, None)
            return
        try:
            await block.__aexit__(ProgramLeft, ProgramLeft(), None)
        except ProgramLeft:
            pass  # the program raises its own error

    def _start(self, call: asyncio.Task[Any]) -> int:
        self._started += 1
        self._calls[self._started] = call
        return self._started


class ProgramLeft(Exception):
    """A program has left a block because of an error of its own."""
