"""The Slurm job that a driver lives in, lent to the allocations that fit into it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from qloom.errors import InputError
from qloom.model import QpuHold
from qloom.ports import Request
from qloom.worlds.slurm.batch import SHARES
from qloom.worlds.slurm.client import call_once
from qloom.worlds.slurm.parts import Part
from qloom.worlds.slurm.rows import FORMAT, Row, read_rows

LOOK_S = 0.05


@dataclass
class OwnJob:
    """Its nodes stay for as long as the driver lives; its QPU can be given back once."""

    row: Row
    nodes: list[str]
    qpu: str | None
    shares: int
    once: bool = False  # a link of a chain does one phase
    lent: Part | None = None
    times_lent: int = 0
    held_from_s: int | None = None  # what lies idle between two leases counts as held by the later one

    def __post_init__(self) -> None:
        self.held_from_s = self.row.start_s

    def lend(self, request: Request, shares: int) -> Part | None:
        """What it has of what is asked for, if it is idle. A link of a chain has all of it, or nothing."""
        of_qpu = self.shares if self.qpu and self.shares == shares else 0
        all_of_it = request.least_nodes <= len(self.nodes) and of_qpu == shares
        if self.lent is not None or (self.once and (self.times_lent or not all_of_it)):
            return None
        nodes = self.nodes[: request.most_nodes]
        if not nodes and not of_qpu:
            return None
        self.lent = Part(self.row.whole, nodes, self.qpu if of_qpu else None, self.held_from_s, self.row.end_s)
        self.times_lent += 1
        return self.lent

    def keeps(self, id: str) -> bool:
        """Whether what is given back is this job itself: then it is idle, and must not be cancelled."""
        if id == f"{self.row.whole}+1":
            self.qpu = None
        elif id == self.row.whole:
            self.lent, self.held_from_s = None, int(time.time())
        return id == self.row.whole


class Turn:
    """A place behind an allocation that the driver's own job may be part of; Slurm cannot keep that one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._withdrawn = False

    def withdraw(self) -> None:
        """Leave it."""
        self._withdrawn = True

    async def come(self, free: Callable[[], bool]) -> bool:
        """Wait until the allocation was given back; False if the place was left before."""
        while not self._withdrawn and not free():  # noqa: ASYNC110  many places give back
            await asyncio.sleep(LOOK_S)
        return not self._withdrawn


def without(request: Request, shares: int, lent: Part | None) -> tuple[Request | None, int]:
    """What is left to ask Slurm for, and how much of the QPU, after the driver's own job has lent its part."""
    if lent is None:
        return request, shares
    nodes = max(0, request.least_nodes - len(lent.nodes))
    if lent.qpu is not None:
        shares = 0
    if not nodes and not shares:
        return None, 0
    qpu = request.qpu if shares else QpuHold.TASK
    rest = replace(request, least_nodes=nodes, most_nodes=nodes, qpu=qpu, device=request.device if shares else None)
    return rest, shares


def own_job(*, once: bool) -> OwnJob:
    """The job that this process was submitted as, by what its script and Slurm have put into its environment."""
    id = os.environ.get("SLURM_JOB_ID")
    if id is None or SHARES not in os.environ:
        raise InputError("this driver is not inside a Slurm job of its own", hint="qloom submit, or --driver here")
    answer = call_once("squeue", "-h", "-t", "all", "-o", FORMAT, "-j", id)
    rows = {row.id: row for row in read_rows(answer.stdout)}
    shares = int(os.environ[SHARES])
    het = f"{id}+1" in rows
    first = rows.get(f"{id}+0") or rows.get(id)
    if first is None:
        raise InputError(f"Slurm does not know job {id}: {answer.complaint}", hint="qloom submit it again")
    if het:
        return OwnJob(first, list(first.nodes), f"{id}+1", shares, once)
    if shares:  # the phase is a QPU's alone: the node that stands for it computes nothing
        return OwnJob(first, [], id, shares, once)
    return OwnJob(first, list(first.nodes), None, 0, once)
