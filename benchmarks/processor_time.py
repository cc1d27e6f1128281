"""Processor time of what the other benchmarks measure, to compare two commits on a machine that does other work too.

    python -m benchmarks.processor_time

Run it in two worktrees; it uses nothing that has moved since ed2e3af. Each figure is the best of several: of the
driver for tasks on this machine, of the service for tasks through the broker, else of this process.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import broker, local_tasks, simulator, virtual_time

import qloom
from qloom.site import Site

HERE = Path(__file__).parent
RIGID, PHASE, ONE_BY_ONE, THROUGH_BROKER = 10_000, 2000, 200, 200


def best_s(work: Callable[[], Any], times: int = 4) -> float:
    """Seconds of this process."""
    taken_s = []
    for _ in range(times):
        gc.collect()
        began_s = time.process_time()
        work()
        taken_s.append(time.process_time() - began_s)
    return min(taken_s)


async def program(job: Any) -> list[float]:
    """Seconds of the driver for each task: in one phase, one at a time, with results in files."""
    await job.classical(*(qloom.call(local_tasks.nothing, -number) for number in range(1, 9)))
    began_s = time.process_time()
    await job.classical(*(qloom.call(local_tasks.nothing, number) for number in range(PHASE)))
    phase_s = (time.process_time() - began_s) / PHASE
    began_s = time.process_time()
    for number in range(ONE_BY_ONE):
        await job.classical(qloom.call(local_tasks.nothing, PHASE + number))
    one_s = (time.process_time() - began_s) / ONE_BY_ONE
    began_s = time.process_time()
    await job.classical(*(qloom.call(local_tasks.large, number) for number in range(local_tasks.FILES)))
    return [phase_s, one_s, (time.process_time() - began_s) / local_tasks.FILES]


def local() -> list[float]:
    """The best of four runs."""
    runs = []
    for _ in range(4):
        with tempfile.TemporaryDirectory() as home:
            os.environ["QLOOM_HOME"] = home
            runs.append(qloom.run(program, strategy="offload", world="local", site=Site(nodes=2)).results[0])
    return [min(figures) for figures in zip(*runs, strict=True)]


def used_s(process: subprocess.Popen[bytes]) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def through_broker(directory: Path, service: subprocess.Popen[bytes]) -> float:
    """Seconds of the service for each task."""
    taken_s = []
    async with broker.Bare.some(directory) as bare:
        for _ in range(3):
            began_s = used_s(service)
            for _ in range(THROUGH_BROKER):
                await bare[0].run(broker.TASK)
            taken_s.append((used_s(service) - began_s) / THROUGH_BROKER)
    return min(taken_s)


def main() -> None:
    """One line for each."""
    load = simulator.rigid_load(RIGID)
    jobs, follows = simulator.prepare(load)  # type: ignore[attr-defined]
    print(f"waits: {best_s(virtual_time.ours_waiting) * 1e3:.0f} ms")
    print(f"contended resource: {best_s(virtual_time.ours_sharing) * 1e3:.0f} ms")
    rigid_s = best_s(lambda: simulator.simulate(load, jobs, follows))  # type: ignore[attr-defined]
    print(f"{RIGID:,} rigid jobs: {rigid_s * 1e3:.0f} ms", flush=True)
    phase_s, one_s, files_s = local()
    print(f"local tasks: {phase_s * 1e6:.0f} us in one phase, {one_s * 1e6:.0f} us one at a time", end="")
    print(f", {files_s * 1e6:.0f} us with results in files", flush=True)
    with tempfile.TemporaryDirectory(prefix="qloom-bench-") as name:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        service = subprocess.Popen([sys.executable, str(HERE / "broker.py"), "--serve", name, port])
        try:
            while not Path(name, "b.sock").exists():
                time.sleep(0.1)
            print(f"broker: {asyncio.run(through_broker(Path(name), service)) * 1e6:.0f} us a task")
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
