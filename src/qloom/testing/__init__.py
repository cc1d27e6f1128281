"""For those who build on qloom: virtual time, fault schedules, and the contracts that its own tests run.

A strategy, world or device of another package is tested by a subclass of `StrategyContract`, `WorldContract` or
`DeviceContract`, whose methods pytest collects. `run_virtual` runs any coroutine function in virtual time; `simulate`
runs whole jobs there, with faults and cancellations. Nothing of qloom imports this package, and it needs no pytest.
"""

from __future__ import annotations

from qloom.testing.contracts import StrategyContract, WorldContract
from qloom.testing.devices import DeviceContract
from qloom.testing.simulation import Simulation, private_home, registered, simulate
from qloom.worlds.virtual.loop import VirtualClock, run_virtual
from qloom.worlds.virtual.world import InjectedFaults

__all__ = [
    "DeviceContract",
    "InjectedFaults",
    "Simulation",
    "StrategyContract",
    "VirtualClock",
    "WorldContract",
    "private_home",
    "registered",
    "run_virtual",
    "simulate",
]
