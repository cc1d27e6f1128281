"""`qloom.testing` as other packages use it: the suites hold for what is right, and fail for what is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from qloom.devices.factory import make_device
from qloom.errors import Deadlock
from qloom.model import Payload
from qloom.strategies import STRATEGIES
from qloom.strategies.static import Offload
from qloom.testing import DeviceContract, StrategyContract, WorldContract, registered, run_virtual
from qloom.testing.contracts import check_liveness, check_program
from qloom.testing.programs import loop
from qloom.worlds.virtual.entry import VirtualEntry

QUBO = {"linear": [["a", -1.0], ["b", 1.0]], "quadratic": [], "offset": 0.0}


class TestMine(StrategyContract):
    class strategy(Offload):
        """Offload by another name."""


class TestWonderland(WorldContract):
    world = VirtualEntry()
    strategies = ("offload", "weave")


class TestAnnealer(DeviceContract):
    def make_device(self):
        return make_device({"kind": "annealing", "set_up_s": 0.01, "per_shot_s": 0.0001})

    def make_payload(self):
        return Payload("qubo", QUBO, shots=10)


@pytest.mark.slow
class TestAnnealerInAProcess(TestAnnealer):
    def make_device(self):
        return make_device({"kind": "process", "device": {"kind": "annealing", "set_up_s": 0.01}})


class Forgets(Offload):
    """Loses the second task of each phase."""

    async def classical(self, tasks):
        return (await super().classical(tasks[:1])) * len(tasks)


@pytest.mark.parametrize(
    "check", [lambda name: check_program(loop, "virtual", name), lambda name: check_liveness(name, 3)]
)
def test_a_strategy_that_loses_work_is_found(check):
    with registered(STRATEGIES, Forgets) as name, pytest.raises(AssertionError):
        check(name)


class StartsTwice:
    """A device that starts a task for each call, whatever the token."""

    def __init__(self, device):
        self._device = device
        self._starts = 0

    async def start(self, token, payload):
        self._starts += 1
        return await self._device.start(f"{token} {self._starts}", payload)

    def __getattr__(self, name):
        return getattr(self._device, name)


def test_a_device_that_starts_a_task_twice_is_found():
    class Twice(TestAnnealer):
        def make_device(self):
            return StartsTwice(super().make_device())

    with pytest.raises(AssertionError, match="the same token has started another task"):
        Twice().test_a_token_starts_one_task()


def test_virtual_time_passes_at_once_and_a_deadlock_is_found():
    async def sleeps(clock):
        await clock.sleep(86_400)
        return clock.now_us()

    async def waits(clock):
        await asyncio.get_running_loop().create_future()

    assert run_virtual(sleeps) == 86_400_000_000
    with pytest.raises(Deadlock):
        run_virtual(waits)


def test_neither_qloom_nor_its_testing_needs_pytest():
    program = "import sys; sys.modules['pytest'] = None; import qloom.testing; assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
