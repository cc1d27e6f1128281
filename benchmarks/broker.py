"""What the broker adds to a task, with tasks that take no time, beside PyPI's `hyperqueue` in the same run.

    python benchmarks/broker.py

Needs `pip install hyperqueue` for the comparison. The service is a process of its own on a unix socket and on
loopback, with a device that does nothing. Everything that it answers is on disk before; so the cost of the disk, as
measured by the same process between the same tasks, is taken out where it says so. HyperQueue runs without a
journal: it makes nothing durable, and starts a process for each task. All ends after ten minutes at the latest.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from qloom.broker.auth.tokens import TokenFile
from qloom.broker.client.client import BrokerClient
from qloom.broker.config import config_from
from qloom.broker.serve import serve
from qloom.device import Description, Outage, Status
from qloom.model import Payload

LIMIT_S = 600
QUEUED = 2000  # for the idle time between tasks
SINGLE, ROUNDS = 60, 5  # tasks one by one
MANY, AT_ONCE, TURNS = 1008, 16, 3
DEEP, PROBES = 10_000, 300
EACH, PAGES = 10, 1000  # an fsync is measured with each tenth task
TIMES = {"kind": "times", "body": None}
TASK: dict[str, Any] = {"kind": "nothing", "body": None}


class NoTime:
    """A device whose tasks are over when they are handed over; it notes when that was, and what an fsync takes then.

    The fsync is the cheapest that a store could have: of one page, within a file that does not grow.
    """

    def __init__(self, directory: Path) -> None:
        self.description = Description("q", "none", 1, ("nothing", "times"))
        self.outages_s: tuple[Outage, ...] = ()
        self.taken = 0
        self.free_s = 0.0
        self.idle_s: list[float] = []
        self.fsync_s: list[float] = []
        self.file = os.open(directory / "fsync", os.O_RDWR | os.O_CREAT)
        os.pwrite(self.file, bytes(PAGES * 4096), 0)
        os.fsync(self.file)

    def check(self, payload: Payload) -> None:
        pass

    def seconds(self, payload: Payload) -> float:
        return 0.0

    def set_up_key(self, payload: Payload) -> str | None:
        return None

    async def start(self, token: str, payload: Payload) -> str:
        self.idle_s.append(time.perf_counter() - self.free_s)
        self.taken += 1
        if self.taken % EACH == 0:  # between two tasks, so that it adds to no idle time
            os.pwrite(self.file, os.urandom(4096), self.taken // EACH % PAGES * 4096)
            began_s = time.perf_counter()
            os.fdatasync(self.file)
            self.fsync_s.append(time.perf_counter() - began_s)
        self.free_s = time.perf_counter()
        return f"{payload.kind}:{token}"

    async def find(self, token: str) -> str | None:
        return None

    async def wait(self, id: str) -> Status:
        return Status("done", billed_s=0.0)

    async def result(self, id: str) -> Any:
        if id.startswith("times"):
            noted = {"idle_s": self.idle_s, "fsync_s": self.fsync_s}
            self.idle_s, self.fsync_s = [], []
            return noted
        return None

    async def stop(self, id: str) -> None:
        pass

    async def state(self) -> str:
        return "idle"

    async def calibration(self) -> None:
        return None

    async def tasks(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        pass


def serve_at(directory: Path, port: int) -> None:
    """The service, as `qloom broker serve` runs it."""
    config = {
        "listen": [f"unix:{directory}/b.sock", f"127.0.0.1:{port}"],
        "store": directory / "broker.db",
        "devices": [{"name": "q"}],
        "limits": {"requests_per_s": 1e9, "burst": 1e9},
    }
    serve(config_from(config, "the benchmark"), lambda values: NoTime(directory))


class Bare:
    """A client of nothing but a socket, to tell the service's time from that of our client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def some(cls, directory: Path) -> AsyncIterator[list[Bare]]:
        """New ones for each measurement: the service closes those that are not used for some seconds."""
        opened = [cls(*await asyncio.open_unix_connection(f"{directory}/b.sock")) for _ in range(AT_ONCE)]
        yield opened
        for one in opened:
            one.writer.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        )
        self.writer.write(head.encode() + b"\r\n\r\n" + content)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        if answer.split()[1] not in ("200", "201"):
            raise RuntimeError(answer)
        size = int(answer.split("content-length:")[1].split()[0])
        return json.loads(await self.reader.readexactly(size))

    async def submit(self, task: dict[str, Any]) -> str:
        return str((await self.ask("POST", "/v1/tasks", {**task, "key": uuid.uuid4().hex}))["id"])

    async def run(self, task: dict[str, Any]) -> Any:
        view = await self.ask("GET", f"/v1/tasks/{await self.submit(task)}/result?wait=30")
        if view["state"] != "done":
            raise RuntimeError(str(view))
        return view["result"]


async def commits(directory: Path) -> int:
    """How often the broker has waited for its disk."""
    transport = httpx.AsyncHTTPTransport(uds=f"{directory}/b.sock")
    async with httpx.AsyncClient(transport=transport, base_url="http://b") as client:
        lines = (await client.get("/metrics")).text.splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith("qloom_store_commit_seconds_count"))


async def median_s(call: Callable[[], Awaitable[Any]], times: int) -> float:
    """Of one call after the other."""
    took = []
    for _ in range(times):
        began_s = time.perf_counter()
        await call()
        took.append(time.perf_counter() - began_s)
    return statistics.median(took)


async def many(calls: Sequence[Callable[[], Awaitable[Any]]], times: int) -> float:
    """Seconds for that many calls, all of `calls` at once."""

    async def some(call: Callable[[], Awaitable[Any]], count: int) -> None:
        for _ in range(count):
            await call()

    began_s = time.perf_counter()
    await asyncio.gather(*(some(call, times // len(calls)) for call in calls))
    return time.perf_counter() - began_s


def told(what: str, value: float, unit: str, most: float) -> str:
    """A figure and whether it is as good as it was meant to be."""
    return f"{what}: {value:.2f} {unit} (at most {most:g}: {'met' if value <= most else 'MISSED'})"


async def idle(broker: BrokerClient, bare: list[Bare]) -> None:
    """How long a device waits for the next of many queued tasks."""
    await broker.drain("q")
    await broker.submit(TIMES)
    await many([partial(one.submit, TASK) for one in bare], QUEUED)
    await broker.drain("q", False)
    times = await broker.run(TIMES)
    gap_s, disk_s = statistics.median(times["idle_s"][1:]), statistics.median(times["fsync_s"])
    print(f"device idle between {QUEUED} queued tasks: {gap_s * 1e3:.2f} ms")
    print(told(f"  less one fsync of {disk_s * 1e3:.2f} ms", (gap_s - disk_s) * 1e3, "ms", 1))


async def latency(brokers: dict[str, Any], directory: Path) -> float:
    """From submission to result, one task at a time; alternating, so that all see the same machine."""
    first, *_ = brokers.values()
    await first.run(TIMES)
    took: dict[str, list[float]] = {name: [] for name in brokers}
    before = await commits(directory)
    for _ in range(ROUNDS):
        for name, broker in brokers.items():
            took[name].append(await median_s(partial(broker.run, TASK), SINGLE))
    syncs = (await commits(directory) - before) / (ROUNDS * SINGLE * len(brokers))
    disk_s = statistics.median((await first.run(TIMES))["fsync_s"])
    print(f"submit to result, {syncs:.1f} commits a task, an fsync takes {disk_s * 1e3:.2f} ms")
    for name, times in took.items():
        whole_s = statistics.median(times)
        print(told(f"  {name}: {whole_s * 1e3:.2f} ms, less fsyncs", (whole_s - syncs * disk_s) * 1e3, "ms", 10))
    return statistics.median(next(iter(took.values())))


async def deep(broker: BrokerClient, bare: list[Bare]) -> None:
    """Whether a long queue slows submission; with a bare socket, whose own time hides nothing."""
    await broker.drain("q")
    await median_s(partial(bare[0].submit, TASK), PROBES // 3)  # warm
    empty_s = await median_s(partial(bare[0].submit, TASK), PROBES)
    filled_s = await many([partial(one.submit, TASK) for one in bare], DEEP)
    full_s = await median_s(partial(bare[0].submit, TASK), PROBES)
    print(f"submission: {empty_s * 1e3:.2f} ms, and {full_s * 1e3:.2f} ms behind {DEEP} queued tasks")
    print(told("  ratio", full_s / empty_s, "times", 2))
    print(f"  {DEEP / filled_s:.0f} submissions/s, {AT_ONCE} at once")


def hyperqueue(directory: Path) -> dict[str, float]:
    """The same with HyperQueue's LocalCluster and /bin/true. Its client looks for the end of a job once a second, so
    each measurement is also made with a last task that writes to a pipe: that is the time without its client.
    """
    hq: Any = importlib.import_module("hyperqueue")
    pipe = directory / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    quiet = {"stdout": None, "stderr": None}
    with hq.LocalCluster() as cluster:
        cluster.start_worker()
        client = cluster.client()

        def run(count: int) -> tuple[float, float]:
            job = hq.Job()
            before = [job.program(["/bin/true"], **quiet) for _ in range(count - 1)]
            job.program(["/bin/sh", "-c", f"echo > {pipe}"], deps=before, **quiet)
            began_s = time.perf_counter()
            submitted = client.submit(job)
            os.read(reader, 1)
            ended_s = time.perf_counter() - began_s
            client.wait_for_jobs([submitted])
            return ended_s, time.perf_counter() - began_s

        run(1)
        single = [run(1) for _ in range(5)]
        all_s = run(MANY)[0]
    return {
        "ended_s": statistics.median(ended for ended, _ in single),
        "told_s": statistics.median(told for _, told in single),
        "per_s": MANY / all_s,
    }


def run_hyperqueue(directory: Path) -> dict[str, float] | None:
    """In a process of its own, because it prints; None if it cannot run here."""
    command = [sys.executable, __file__, "--hyperqueue", str(directory)]
    answer = directory / "hyperqueue.json"
    answer.unlink(missing_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        return dict(json.loads(answer.read_text()))
    except subprocess.TimeoutExpired:
        reason = "it took longer than 180 s"
    except OSError:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    print(f"*** NOT COMPARED: hyperqueue does not run here: {reason}")
    return None


async def compare(broker: BrokerClient, directory: Path, single_s: float) -> None:
    """Throughput, in turns with HyperQueue; ratios above 1 are in our favour."""
    ours, plain, others = [], [], []
    for _ in range(TURNS):
        ours.append(MANY / await many([partial(broker.run, TASK)] * AT_ONCE, MANY))
        async with Bare.some(directory) as bare:
            plain.append(MANY / await many([partial(one.run, TASK) for one in bare], MANY))
        if (other := await asyncio.to_thread(run_hyperqueue, directory)) is None:
            break
        others.append(other)
    our_rate, plain_rate = statistics.median(ours), statistics.median(plain)
    print(
        f"throughput, {AT_ONCE} at once: {our_rate:.0f} tasks/s with our client, {plain_rate:.0f} with bare sockets"
    )
    if not others:
        return
    theirs = {name: statistics.median(other[name] for other in others) for name in others[0]}
    rate = theirs["per_s"]
    print(f"hyperqueue, {MANY} tasks of one job: {rate:.0f} tasks/s")
    print(f"  ours / theirs: {our_rate / rate:.2f}, {plain_rate / rate:.2f} with bare sockets (aim: at least 1)")
    for what, name in (("its task has ended", "ended_s"), ("its client says so", "told_s")):
        print(f"hyperqueue, one task: {theirs[name] * 1e3:.1f} ms until {what}")
        print(f"  theirs / ours: {theirs[name] / single_s:.1f} (aim: at least 10)")


async def measure(directory: Path, port: int) -> None:
    """All of it, with a service that is up."""
    token = TokenFile(directory / "tokens.json").add("bench", ["default"])
    async with (
        BrokerClient(f"unix:{directory}/b.sock", retry_s=30) as broker,
        BrokerClient(f"127.0.0.1:{port}", token, retry_s=30) as loopback,
    ):
        await median_s(partial(broker.run, TASK), 20)  # warm
        async with Bare.some(directory) as bare:
            await idle(broker, bare)
        async with Bare.some(directory) as bare:
            ways = {"unix socket": broker, "loopback": loopback, "unix socket without our client": bare[0]}
            single_s = await latency(ways, directory)
        await compare(broker, directory, single_s)
        async with Bare.some(directory) as bare:
            await deep(broker, bare)


def main() -> None:
    """Start a service, measure, stop it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="qloom-bench-") as name:
        service = subprocess.Popen([sys.executable, __file__, "--serve", name, str(port)])
        try:
            asyncio.run(measure(Path(name), port))
        finally:
            service.terminate()
            try:
                service.wait(20)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    match sys.argv[1:]:
        case ["--serve", directory, port]:
            serve_at(Path(directory), int(port))
        case ["--hyperqueue", directory]:
            found = hyperqueue(Path(directory))
            (Path(directory) / "hyperqueue.json").write_text(json.dumps(found))
        case _:
            main()
