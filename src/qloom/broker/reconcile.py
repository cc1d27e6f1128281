"""Where a vendor's accounting and ours differ."""

from __future__ import annotations

from typing import Any

from qloom.broker.store.store import Store
from qloom.device import Description

NOT_LISTED = "the vendor does not list it"
TOLERANCE_S, TOLERANCE = 0.01, 0.01


def differences(store: Store, description: Description, vendor: dict[str, float]) -> list[dict[str, Any]]:
    """One row per difference: `vendor` is billed seconds by task id, as far as the vendor tells.

    An emulated device forgets its books with each restart, and some vendors show none: what such a device does not
    list means nothing.
    """
    device = description.name
    rows: list[dict[str, Any]] = []
    known: dict[str, None] = {}
    ours = store.rows("SELECT * FROM handovers WHERE device = ? ORDER BY began_us, token", device)
    for row in ours:
        id, billed_s = row["device_id"], row["billed_s"]
        if id is not None:
            known[id] = None
        theirs_s = vendor.get(id) if id is not None else None
        problem = _problem(row["outcome"], id, row["ended_us"], billed_s, theirs_s)
        if problem == NOT_LISTED and (description.emulated or not description.tells_billed_s):
            continue
        if problem:
            seconds = {"ours_s": billed_s, "vendor_s": theirs_s}
            rows.append({"device": device, "task": row["task"], "device_id": id, "problem": problem, **seconds})
    for id, theirs_s in vendor.items():
        if id not in known:
            problem = "the vendor bills a task that this broker does not know"
            rows.append(
                {
                    "device": device,
                    "task": None,
                    "device_id": id,
                    "problem": problem,
                    "ours_s": None,
                    "vendor_s": theirs_s,
                }
            )
    return rows


def _problem(
    outcome: str | None, id: str | None, ended_us: int | None, ours_s: float | None, theirs_s: float | None
) -> str:
    if outcome == "uncertain":
        return "the device could not say whether it was given this task: it may have run"
    if id is None or ended_us is None or outcome == "unknown":
        return ""  # never handed over, or still there
    if theirs_s is None:
        return NOT_LISTED
    if abs((ours_s or 0.0) - theirs_s) > max(TOLERANCE_S, TOLERANCE * theirs_s):
        return "billed seconds differ"
    return ""
