"""A child process that ends says how it ended, whatever it was being asked; nobody waits for what it has started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from qloom.devices.child import Child, ChildDied, OutOfCpuTime

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


LEAVES = """
import os, subprocess, sys, time
held = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # has our pipes
print(held.pid, file=open(sys.argv[1], "w"), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("attached", [b"", b"x" * 10_000_000], ids=["asked", "while it is being asked"])
def test_what_a_child_has_started_may_hold_its_pipes_open_and_nobody_waits_for_that(attached, tmp_path):
    note = tmp_path / "pid"

    async def ask():
        child = Child((sys.executable, "-c", LEAVES, str(note)), what="the child")
        await child.start()
        while not (note.exists() and note.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(30):
                with pytest.raises(ChildDied, match="did not answer"):
                    await child.call("read", {}, 0.1, attached)
                await child.close()
        finally:
            os.kill(int(note.read_text()), signal.SIGKILL)

    asyncio.run(ask())
