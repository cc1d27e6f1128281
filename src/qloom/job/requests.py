"""A request for nodes or a QPU, and what came of it, as the journal has them."""

from __future__ import annotations

from qloom.journal.events import Granted, QueuedAhead, Requested, Withdrawn
from qloom.world import Lease, Request


def requested(request: Request, reason: str | None = None) -> Requested:
    """The request stands in line."""
    return Requested(
        lease=request.id,
        nodes=request.least_nodes,
        device=request.device,
        hold=request.qpu.value,
        spare=request.spare,
        reason=reason,
    )


def queued_ahead(request: Request, after: Lease, reason: str | None) -> QueuedAhead:
    """The request has a place in line, and is not eligible before another lease has ended."""
    return QueuedAhead(
        lease=request.id,
        nodes=request.least_nodes,
        device=request.device,
        hold=request.qpu.value,
        spare=request.spare,
        after=after.id,
        reason=reason,
    )


def answered(request: Request, lease: Lease | None) -> Granted | Withdrawn:
    """The request was granted as this lease or (None) withdrawn."""
    if lease is None:
        return Withdrawn(lease=request.id)
    return Granted(
        lease=lease.id,
        nodes=list(lease.nodes),
        device=lease.device,
        hold=request.qpu.value if lease.device else None,
        shares=lease.shares or None,
        waited_for=request.waited_for,
        engine_us=lease.engine_us,
        engine_id=lease.engine_id,
    )
