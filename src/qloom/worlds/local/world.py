"""The local world: a line for the slots of this machine, and a warm worker process in each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qloom.broker.promise import DeviceSpec
from qloom.broker.technologies import technology
from qloom.errors import QuantumFailed, TaskFailed
from qloom.model import CommandResult, Payload, QuantumWork, Task, Work
from qloom.ports import Lease, Request, World
from qloom.site import Qpu, Site
from qloom.worlds.checks import check_task
from qloom.worlds.execution import anneal
from qloom.worlds.line import Line
from qloom.worlds.local.process import TaskRaised, WorkerDied, WorkerProcess
from qloom.worlds.partitions import Partitions, lease_of


class RealClock:
    """Time since the run began, from a clock that never goes back."""

    def __init__(self, began_us: int | None = None) -> None:
        since_us = 0 if began_us is None else time.time_ns() // 1000 - began_us
        self._zero_ns = time.monotonic_ns() - max(0, since_us) * 1000

    def now_us(self) -> int:
        """Microseconds since the start of the run."""
        return (time.monotonic_ns() - self._zero_ns) // 1000

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def deadline(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` when the time is up."""
        return asyncio.get_running_loop().call_later(seconds, then).cancel


@dataclass
class LocalWorld(World):
    """Nodes are slots of this machine."""

    site: Site
    clock: RealClock
    worker_set_up: dict[str, Any]
    logs: Path | None = None
    record: Callable[..., None] | None = None
    _workers: dict[str, WorkerProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.node_names = self.site.node_names
        self.devices = [LocalDevice(qpu, self) for qpu in self.site.qpus]
        self._line = Line(Partitions(self.node_names, {qpu.name: qpu.shares for qpu in self.site.qpus}), self.clock)

    async def grant(self, request: Request) -> Lease | None:
        """Wait in line for a new lease; workers start while the job gets going."""
        grant = await self._line.wait(request)
        if grant is None:
            return None
        for node in grant.nodes:
            self.worker(node)
        return lease_of(grant)

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Wait in line for more nodes."""
        grant = await self._line.wait(request)
        if grant is None or request.lease is None:
            return ()
        for node in grant.nodes:
            self.worker(node)
        request.lease.nodes.extend(grant.nodes)
        return grant.nodes

    def withdraw(self, request: Request) -> None:
        """Leave the line."""
        self._line.withdraw(request)

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> None:
        """Give some nodes back; their workers stay warm."""
        self._line.give_back(lease, list(nodes), qpu=False)

    async def drop_qpu(self, lease: Lease) -> None:
        """Give the QPU back."""
        self._line.give_back(lease, [], qpu=True)

    async def free(self, lease: Lease) -> None:
        """Give everything back."""
        self._line.give_back(lease, list(lease.nodes), qpu=True)

    async def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> Any:
        """Run a task in the worker of its first node."""
        task = work.task
        environment = {"QLOOM_NODES": ",".join(nodes), "QLOOM_CPUS": str(task.cpus), "QLOOM_JOB": work.job}
        try:
            result = await self.worker(nodes[0]).run(task, environment)
        except TaskRaised as error:
            raise TaskFailed(f"task {task.name} on {nodes[0]} {error}", job=work.job) from None
        except WorkerDied as error:
            raise TaskFailed(f"task {task.name} on {nodes[0]} {error}", job=work.job) from None
        if isinstance(result, CommandResult) and result.exit_code != 0:
            last = (result.stderr or result.stdout).strip()
            raise TaskFailed(
                f"task {task.name} on {nodes[0]} exited with {result.exit_code}" + (f"\n{last}" if last else ""),
                job=work.job,
            )
        return result

    def worker(self, name: str) -> WorkerProcess:
        """The live worker of a slot; a dead one is replaced."""
        known = self._workers.get(name)
        if known is None or not known.alive:
            log = self.logs / f"{name}.log" if self.logs is not None else None
            known = self._workers[name] = WorkerProcess(name, self.worker_set_up, log)
            known.ready.add_done_callback(self._note_start(name))
        return known

    def _note_start(self, name: str) -> Callable[[asyncio.Task[Any]], None]:
        """What a start costs is in the journal, so that virtual time can be given the same."""
        began_us = self.clock.now_us()

        def note(ready: asyncio.Task[Any]) -> None:
            if self.record is not None and not ready.cancelled() and ready.exception() is None:
                self.record("worker_started", node=name, seconds=(self.clock.now_us() - began_us) / 1e6)

        return note

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        check_task(task, self.site)

    def who_waits(self) -> list[str]:
        """Who stands in line, in plain words."""
        return self._line.who_waits()

    def require_all_free(self) -> None:
        """Local slots end with the process: nothing can be leaked past it."""

    async def close(self) -> None:
        """End all workers."""
        for known in self._workers.values():
            known.kill()


class LocalDevice:
    """An emulated QPU: simulated annealing in a process of its own, as slow as its technology."""

    def __init__(self, qpu: Qpu, world: LocalWorld) -> None:
        self.spec = DeviceSpec(qpu.name, qpu.shares, qpu.lanes)
        self.outages_s = qpu.away_s
        self.qubits = qpu.qubits
        self._technology = technology(qpu.technology)
        self._world = world
        self._lanes = [f"{qpu.name}-{lane}" for lane in range(qpu.lanes)]

    def seconds(self, payload: Payload) -> float:
        """How long the technology takes."""
        return self._technology.seconds(payload)

    async def run(self, work: QuantumWork) -> Any:
        """Compute the answer while the time passes that the device would take."""
        if work.payload.kind == "command":
            return await self._answer(work)  # it talks to the device itself: it takes as long as it takes
        until_us = self._world.clock.now_us() + round(self.seconds(work.payload) * 1e6)
        answer = await self._answer(work) if work.payload.kind != "delay" else work.payload.body
        await self._world.clock.sleep(max(0, until_us - self._world.clock.now_us()) / 1e6)
        return answer

    async def _answer(self, work: QuantumWork) -> Any:
        lane = self._lanes.pop()
        try:
            if work.payload.kind == "command":
                return await self._run_command(work, lane)
            return await self._world.worker(lane).call(anneal, work.payload.body, work.payload.shots, work.seed)
        except (TaskRaised, WorkerDied) as error:
            raise QuantumFailed(f"QPU {self.spec.name}, task {work.payload.name} {error}", job=work.job) from None
        finally:
            self._lanes.append(lane)

    async def _run_command(self, work: QuantumWork, lane: str) -> CommandResult:
        environment = {"QLOOM_QPU": self.spec.name, "QLOOM_JOB": work.job}
        result: CommandResult = await self._world.worker(lane).run(work.payload.body, environment)
        if result.exit_code != 0:
            last = (result.stderr or result.stdout).strip()
            raise WorkerDied(f"exited with {result.exit_code}" + (f"\n{last}" if last else ""))
        return result
