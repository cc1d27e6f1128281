"""The modelled cluster: the line of the other worlds, durations that are expected or were measured."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.errors import AllocationEnded, JobError, NodeLost, QuantumFailed, TaskFailed
from qloom.journal.content import digest
from qloom.model import Payload, QuantumWork, Task, Work, work_of
from qloom.site import Site
from qloom.world import Durations, Lease, Ran, Request, World
from qloom.worlds.answers import compute_inline, emulate, solve
from qloom.worlds.line import FifoLine, WorldLine
from qloom.worlds.partitions import Partitions, lease_of
from qloom.worlds.virtual.loop import VirtualClock


@dataclass(frozen=True)
class InjectedFaults:
    """How often things fail, decided by seed and content, so that a failing run can be repeated."""

    seed: int = 0
    task_rate: float = 0.0
    node_rate: float = 0.0  # the first run of a task loses its node
    quantum_rate: float = 0.0

    def hits(self, rate: float, work: Work | QuantumWork) -> bool:
        """Whether this work fails."""
        return rate > 0 and int(digest(self.seed, work.job, work.id)[:8], 16) / 16**8 < rate


@dataclass
class VirtualWorld(World):
    """Nodes and overheads of a site, in virtual time."""

    site: Site
    clock: VirtualClock
    profile: Durations | None = None
    faults: InjectedFaults = field(default_factory=InjectedFaults)
    line: WorldLine | None = None  # a loaded cluster has one of its own

    def __post_init__(self) -> None:
        self.node_names = self.site.node_names
        self.devices = [
            emulate(qpu, self.clock, VirtualAnswers(qpu.name, self.profile, self.faults)) for qpu in self.site.qpus
        ]
        self.shares = {qpu.name: qpu.shares for qpu in self.site.qpus}
        self._overheads = self.site.overheads
        self._line: WorldLine = self.line or FifoLine(
            Partitions(self.node_names, self.shares), self.clock, self._overheads.tick_s
        )
        self._leases: dict[str, Lease] = {}
        self._working: dict[str, dict[asyncio.Future[Ran], None]] = {}  # lease -> what runs there
        self._lost: dict[str, str] = {}  # lease -> the node of it that failed
        self._submitting: dict[str, bool] = {}  # request -> still wanted
        self._warm: dict[tuple[str, str], bool] = {}  # (lease or "", node) -> a worker is there
        self._without_expectation: dict[str, bool] = {}
        self._failed_tasks: dict[tuple[str, str], bool] = {}  # (job, work) -> an injected fault has hit it
        self._failed_once: dict[tuple[str, str], bool] = {}  # (job, work) -> its node has failed

    async def grant(self, request: Request) -> Lease | None:
        """Wait in line for a new lease."""
        self._submitting[request.id] = True
        await self._pass_time(self._overheads.submit_s)
        grant = await self._line.wait(request) if self._submitting.pop(request.id) else None
        if grant is None:
            return None
        lease = self._leases[request.id] = lease_of(grant, self.clock.now_us())
        await self._pass_time(self._overheads.grant_s)
        return lease

    async def more_nodes(self, request: Request) -> Sequence[str]:
        """Wait in line for more nodes."""
        grant = await self._line.wait(request)
        if grant is None or request.lease is None:
            return ()
        request.lease.engine_us = self.clock.now_us()
        request.lease.nodes.extend(grant.nodes)
        await self._pass_time(self._overheads.grow_s)
        return grant.nodes

    def withdraw(self, request: Request) -> None:
        """Leave the line, or never enter it."""
        if request.id in self._submitting:
            self._submitting[request.id] = False
        else:
            self._line.withdraw(request)

    async def drop_nodes(self, lease: Lease, nodes: Sequence[str]) -> int:
        """Give some nodes back."""
        await self._pass_time(self._overheads.shrink_s)
        return self._give_back(lease, list(nodes), qpu=False)

    async def drop_qpu(self, lease: Lease) -> int:
        """Give the QPU back."""
        await self._pass_time(self._overheads.release_s)
        return self._give_back(lease, [], qpu=True)

    async def free(self, lease: Lease) -> int:
        """Give everything back."""
        await self._pass_time(self._overheads.release_s)
        for kept in (self._leases, self._working, self._lost):
            kept.pop(lease.id, None)
        lease.ended = True
        return self._give_back(lease, list(lease.nodes), qpu=True)

    def _give_back(self, lease: Lease, nodes: list[str], *, qpu: bool) -> int:
        for node in nodes if self._warm else ():
            self._warm.pop((lease.id, node), None)
        self._line.give_back(lease, nodes, qpu=qpu)
        return self.clock.now_us()

    def execute(self, nodes: Sequence[str], work: Work, lease: Lease) -> asyncio.Future[Ran]:
        """Let the time pass that a task takes, then compute or recall its result: timers, and no task of asyncio."""
        running = self.clock.new_future()
        overheads = self._overheads
        if overheads.worker_start_s:
            owner = "" if overheads.warm_workers else lease.id
            if cold := [(owner, node) for node in nodes if (owner, node) not in self._warm]:

                def worker_started() -> None:
                    if not running.done():  # else the worker was killed with its task
                        self._warm.update(dict.fromkeys(cold, True))
                        self._begin(running, nodes, work, lease, overheads.worker_start_s + overheads.task_s)

                self.clock.call_later(overheads.worker_start_s, worker_started)
                return running
        self._begin(running, nodes, work, lease, overheads.task_s)
        return running

    def _begin(
        self, running: asyncio.Future[Ran], nodes: Sequence[str], work: Work, lease: Lease, before_s: float
    ) -> None:
        """Start the time of a task; it ends at once if a node of its lease is lost."""
        if lease.id in self._lost:
            running.set_exception(AllocationEnded(f"node {self._lost[lease.id]} was lost"))
            return
        seconds = self._seconds(work)
        end = functools.partial(self._end, running, nodes, work, lease, seconds if before_s else None)
        total_s = self._overheads.task_s + seconds
        if total_s > 0:
            self._working.setdefault(lease.id, {})[running] = None
            self.clock.call_later(total_s, end)
        else:
            end()

    def _end(
        self, running: asyncio.Future[Ran], nodes: Sequence[str], work: Work, lease: Lease, seconds: float | None
    ) -> None:
        if (working := self._working.get(lease.id)) is not None:
            working.pop(running, None)
        if running.done():  # cancelled, or its node was lost
            return
        try:
            running.set_result(Ran(self._outcome(nodes, work, lease), seconds))
        except asyncio.CancelledError:
            running.cancel()
        except Exception as error:
            running.set_exception(error)

    def _outcome(self, nodes: Sequence[str], work: Work, lease: Lease) -> Any:
        """The result of a task whose time is over, unless a fault is injected."""
        faults = self.faults
        if faults.node_rate and (work.job, work.id) not in self._failed_once and faults.hits(faults.node_rate, work):
            self._failed_once[work.job, work.id] = True
            self._give_back(lease, [nodes[0]], qpu=False)
            raise NodeLost(f"task {work.task.name}: node {nodes[0]} failed (injected fault)")
        if faults.task_rate and faults.hits(faults.task_rate, work) and not self._was_retried(work):
            raise TaskFailed(f"task {work.task.name} was killed on {nodes[0]} (injected fault)")
        return self._result(work)

    def _was_retried(self, work: Work) -> bool:
        """Whether an injected fault has hit this task before, and it is run again for that reason."""
        failed_before = (work.job, work.id) in self._failed_tasks
        self._failed_tasks[work.job, work.id] = True
        return failed_before and work.task.retries > 0

    def _result(self, work: Work) -> Any:
        if self.profile is not None and self.profile.has(work):
            return self.profile.result(work)
        try:
            return compute_inline(work.task)
        except Exception as error:
            raise TaskFailed(f"task {work.task.name} raised {type(error).__name__}: {error}") from None

    def lose_node(self, node: str) -> None:
        """A node fails and, as on Slurm by default, the lease that holds it ends: its tasks, and all that come."""
        for lease in self._leases.values():
            if node in lease.nodes:
                self._lost[lease.id] = node
                for running in self._working.get(lease.id, ()):
                    if not running.done():
                        running.set_exception(AllocationEnded(f"node {node} was lost"))

    def program_s(self, job: str, call: str | None, awaited: bool) -> float | None:
        """How long a program computes before a call, if a profile has it."""
        return None if self.profile is None else self.profile.program_s(job, call, awaited)

    def measures_programs(self) -> bool:
        """Whether a profile has what programs compute themselves."""
        return self.profile is not None and self.profile.measures_programs

    @property
    def tasks_without_expectation(self) -> Sequence[str]:
        """Names of tasks that took no time, since nobody knows how long they take."""
        return list(self._without_expectation)

    def check_task(self, task: Task) -> None:
        """Refuse what no node could ever run."""
        self.site.check_task(task)

    def nodes_are_short(self) -> bool:
        """Whether somebody waits for nodes, other than for spare work."""
        return self._line.nodes_are_short()

    def asked_nodes(self, lease: Lease) -> int | None:
        """What a policy wants a malleable job to keep to, if the cluster is loaded."""
        return self._line.asked_nodes(lease)

    def who_waits(self) -> list[str]:
        """For the report of a deadlock."""
        return self._line.who_waits()

    def require_all_free(self) -> None:
        """After a run: whatever is still held was leaked."""
        if not self._line.is_free():
            raise JobError("the run is over and something is still held or asked for", hint="this is a bug in qloom")

    async def close(self) -> None:
        """Nothing to close."""

    async def _pass_time(self, seconds: float) -> None:
        if seconds > 0:
            await self.clock.sleep(seconds)

    def _seconds(self, work: Work) -> float:
        measured_s = self.profile.seconds(work) if self.profile is not None else None
        if measured_s is not None:
            return measured_s
        if work.task.expected_s is None:
            self._without_expectation[work.task.name] = True
            return 0.0
        return work.task.expected_s


class VirtualAnswers:
    """Answers of a QPU in virtual time: recalled if a profile has them, else computed on the spot."""

    def __init__(self, qpu: str, profile: Durations | None, faults: InjectedFaults) -> None:
        self._qpu = qpu
        self._profile = profile
        self._faults = faults

    def seconds(self, payload: Payload) -> float | None:
        """How long the task took when it was measured."""
        return self._profile.seconds(work_of(payload)) if self._profile is not None else None

    def begin(self, token: str, payload: Payload, *, crash: bool = False) -> None:
        """Nothing happens beside virtual time."""

    def compute(self, token: str, payload: Payload) -> Any:
        """The answer, unless a fault is injected."""
        if self._faults.quantum_rate and self._faults.hits(self._faults.quantum_rate, work_of(payload)):
            raise QuantumFailed(f"QPU {self._qpu} failed (injected fault)")
        if self._profile is not None and self._profile.has(work := work_of(payload)):
            return self._profile.result(work)
        return solve(payload, payload.options["seed"])

    async def close(self) -> None:
        """Nothing to end."""
