"""What a program computes itself, between the calls of its job: an optimiser, a fit, a transpiler.

In real time it is measured: from when a program is given something until it waits again. In virtual time no time
passes by itself; there it is taken from the profile of an earlier run, or declared by the program (`job.spend`).
Either way the journal has it, before the call that the program made next.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Coroutine, Generator
from typing import Any

from qloom.journal.event import Record
from qloom.journal.events import ProgramComputed
from qloom.journal.replay import Memory
from qloom.world import World

LEAST_US = 1000  # shorter stretches are recorded together


class ProgramTime:
    """The time that one program computes for."""

    def __init__(self, job: str, world: World, record: Record, memory: Memory) -> None:
        self.is_measured = world.clock.real_time
        self.is_known = not self.is_measured and world.measures_programs()
        self._job = job
        self._world = world
        self._clock = world.clock
        self._record = record
        self._memory = memory
        self._running_since_us: int | None = None
        self._waits = 0  # of several threads
        self._measured_us = 0
        self._busy_until_us = 0  # in virtual time: what calls were made at one instant were made one after the other
        self._spent: Counter[float] = Counter()

    # Measured, in real time

    def start(self) -> None:
        """The program begins to compute, or is given what it waited for."""
        self._waits = max(0, self._waits - 1)
        if self._waits == 0:
            self._running_since_us = self._clock.now_us()

    def stop(self) -> None:
        """The program waits."""
        self._waits += 1
        self._take_measure()
        self._running_since_us = None

    def _take_measure(self) -> None:
        if self._running_since_us is not None:
            now_us = self._clock.now_us()
            self._measured_us += now_us - self._running_since_us
            self._running_since_us = now_us

    def note(self, call: str | None, *, awaited: bool = False) -> None:
        """Record what was computed before a call was made, or (`awaited`) asked for its result; None: the end."""
        self._take_measure()
        if call in self._memory.calls:
            self._measured_us = 0  # recorded when the call was made for the first time
        elif self._measured_us >= LEAST_US:
            seconds, self._measured_us = self._measured_us / 1e6, 0
            self._record(ProgramComputed(seconds=seconds, call=call, awaited=awaited))

    async def measure(self, program: Coroutine[Any, Any, Any]) -> Any:
        """Drive an asynchronous program, and count the time of its steps."""
        return await self._steps(program)

    @types.coroutine
    def _steps(self, program: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            self.start()
            try:
                awaited = program.send(None) if error is None else program.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self.stop()
            try:
                yield awaited
                error = None
            except GeneratorExit:
                program.close()
                raise
            except BaseException as thrown:
                error = thrown

    async def end(self) -> None:
        """The program has ended: count what it computed after its last call."""
        if self.is_measured:
            self.note(None)
        elif self.is_known:
            await self.pass_before(None)

    # Known or declared, in virtual time

    async def pass_before(self, call: str | None, *, awaited: bool = False) -> None:
        """Let the time pass that the program computed for here when it was measured."""
        seconds = self._world.program_s(self._job, call, awaited)
        if seconds and call not in self._memory.calls:
            await self._compute(ProgramComputed(seconds=seconds, call=call, awaited=awaited))

    async def spend(self, seconds: float) -> None:
        """Let time pass that the program says it computes for, unless that is measured or was recorded before."""
        self._spent[seconds] += 1
        is_replayed = self._spent[seconds] <= self._memory.spent[seconds]
        if not self.is_measured and not self.is_known and not is_replayed:
            await self._compute(ProgramComputed(seconds=seconds, declared=True))

    async def _compute(self, computed: ProgramComputed) -> None:
        now_us = self._clock.now_us()
        self._busy_until_us = max(self._busy_until_us, now_us) + round(computed.seconds * 1e6)
        await self._clock.sleep((self._busy_until_us - now_us) / 1e6)
        self._record(computed)
