"""What the events of leases change in the state of a run (`fold.py`): who waits for and holds which nodes and QPUs.

The nodes that the job of a driver keeps for its run count as held by the driver while nobody else holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qloom.journal.events import (
    DriverReleased,
    DriverStarted,
    Granted,
    Grown,
    QpuReleased,
    QueuedAhead,
    Released,
    Requested,
    Shrunk,
    StillWaits,
    Withdrawn,
)
from qloom.journal.intervals import Wait, opened
from qloom.journal.state import DriverState, LeaseState

if TYPE_CHECKING:
    from qloom.journal.fold import RunState


def queued_ahead(run: RunState, event: QueuedAhead) -> None:
    job = run.job(event.job)
    if job.asked_us is None:
        job.asked_us = event.at_us


def requested(run: RunState, event: Requested) -> None:
    job, since_us = run.job(event.job), event.at_us
    if run.handed_us is not None and event.job not in run.asked:
        run.asked[event.job] = None
        since_us = run.handed_us
    if job.asked_us is None:
        job.asked_us = since_us
    job.requests[event.lease] = Wait("nodes" if event.nodes else "qpu", event.job, event, since_us, since_us)
    job.engine_reasons.pop(event.lease, None)


def still_waits(run: RunState, event: StillWaits) -> None:
    run.job(event.job).engine_reasons[event.lease] = event.reason


def granted(run: RunState, event: Granted | Grown) -> None:
    job, at_us = run.job(event.job), event.when_us
    if run.gaps and at_us < run.gaps[-1][1]:  # a job that holds nodes already continued the run
        run.gaps[-1] = (run.gaps[-1][0], max(run.gaps[-1][0], at_us))
    job.end_wait(job.requests, event.lease, event)
    lease = job.held.get(event.lease)
    if lease is None:
        lease = job.held[event.lease] = LeaseState([])
    if event.nodes:
        lease.parts.append(opened("node", event.job, event.nodes, at_us, event.lease))
    if run.driver.idle:
        run.driver.lend(event.nodes, at_us, run.trace)
    if isinstance(event, Granted) and event.device is not None:
        if run.driver.idle:
            run.driver.lend((event.device,), at_us, run.trace)
        kind = "qpu" if event.hold == "whole" else "vqpu"
        lease.qpu = opened(kind, event.job, (event.device,), at_us, event.lease)


def withdrawn(run: RunState, event: Withdrawn) -> None:
    job = run.job(event.job)
    wait = job.end_wait(job.requests, event.lease, event)
    if wait is not None and isinstance(wait.asked, Requested):
        job.went_without = (wait.asked, event.at_us)


def shrunk(run: RunState, event: Shrunk) -> None:
    job, at_us = run.job(event.job), event.when_us
    lease = job.held.get(event.lease)
    for part in list(lease.parts) if lease is not None else ():
        gone = [node for node in part.resources if node in event.nodes]
        if lease is not None and len(gone) == len(part.resources):
            lease.parts.remove(part)
            job.end_held(part, at_us)
        elif gone:
            job.end_held(part.over(part.begin_us, at_us, gone), at_us)
            part.resources = [node for node in part.resources if node not in gone]
            part.is_reduced = True
    _keep_for_driver(run, at_us)


def qpu_released(run: RunState, event: QpuReleased) -> None:
    job, at_us = run.job(event.job), event.when_us
    lease = job.held.get(event.lease)
    if lease is not None and lease.qpu is not None:
        job.end_held(lease.qpu, at_us)
        lease.qpu = None
    _keep_for_driver(run, at_us)


def released(run: RunState, event: Released) -> None:
    job, at_us = run.job(event.job), event.when_us
    lease = job.held.pop(event.lease, None)
    for interval in lease.intervals() if lease is not None else ():
        job.end_held(interval, at_us)
    _keep_for_driver(run, at_us)


def driver_started(run: RunState, event: DriverStarted) -> None:
    job = "j1" if run.start.jobs == 1 else ""
    kind = "qpu" if event.hold == "whole" else "vqpu"
    idle = run.driver.idle
    run.driver = DriverState(job, list(event.nodes), event.weight or 1.0, event.device, kind, idle)
    _keep_for_driver(run, event.when_us)


def driver_released(run: RunState, event: DriverReleased) -> None:
    driver, nodes = run.driver, event.nodes or []
    driver.nodes = [node for node in driver.nodes if node not in nodes]
    driver.lend(nodes, event.when_us, run.trace)
    if event.device is not None:
        driver.device = None if event.device == driver.device else driver.device
        driver.lend((event.device,), event.when_us, run.trace)


def _keep_for_driver(run: RunState, at_us: int) -> None:
    if run.driver.nodes or run.driver.device is not None:
        held = [interval for job in run.jobs.values() for interval in job.open_intervals() if not interval.work]
        run.driver.keep((resource for interval in held for resource in interval.resources), at_us)
