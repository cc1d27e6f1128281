"""A child process that ends says how it ended, whatever it was being asked."""

from __future__ import annotations

import asyncio
import sys

import pytest

from qloom.devices.child import Child, OutOfCpuTime

ENDS = "import os, resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.read(0, 1); "


@pytest.mark.parametrize("attached", [b"", b"x" * 10_000_000], ids=["asked", "while it is being asked"])
def test_a_child_that_used_up_its_cpu_time_says_so(attached):
    async def ask():
        child = Child((sys.executable, "-c", ENDS + "os.kill(os.getpid(), signal.SIGXCPU)"), what="the child")
        try:
            await child.call("read", {}, 30.0, attached)
        finally:
            await child.close()

    with pytest.raises(OutOfCpuTime, match="more CPU time than it may"):
        asyncio.run(ask())
