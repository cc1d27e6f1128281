"""The figures of one cell, from its journal alone; with the ways of accounting of a paper, if they are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from qloom.journal.accounting import History, Interval, account, read_history
from qloom.journal.file import Event
from qloom.journal.measured import measured


def figures_of(events: Sequence[Event], quirks: Sequence[str] = ()) -> dict[str, float]:
    """All figures of a run; `wall_s` and `node_s` as billed, `wall_s_honest` and `node_s_held` without quirks."""
    if (under_load := measured(events)) is not None:
        return under_load
    history = read_history(list(events))
    used = account(history)
    strategy = history.start["strategy"].partition("+")[0]
    wall_s, node_s = used.wall_s, used.node_s_held
    if "baseline-double-is-a-sum" in quirks and strategy == "offload":
        wall_s = sum(account(history, job).wall_s for job in history.jobs)
    if "workflow-bills-used-nodes" in quirks and strategy == "workflow":
        node_s = _used_nodes_s(history)
    nodes = history.start["site"]["nodes"]
    told = used.as_dict()
    qpu_s = used.wall_s * max(1, len(history.start["site"]["qpus"]))
    return {
        **{name: value for name, value in told.items() if isinstance(value, float)},
        "wall_s": round(wall_s, 6),
        "node_s": round(node_s, 6),
        "wall_s_honest": told["wall_s"],
        "node_use": round(used.node_s_busy / used.node_s_held, 6) if used.node_s_held else 0.0,
        "qpu_use": round(used.qpu_s_busy / qpu_s, 6) if qpu_s else 0.0,
        "cost_node_s": round(nodes * wall_s + node_s, 6),
        **_task_waits(events),
    }


def _task_waits(events: Sequence[Event]) -> dict[str, float]:
    """How long quantum tasks stood in the queue of their device, once their job had its hold on it."""
    queued_us: dict[tuple[str, str], int] = {}
    waits_s = []
    for event in events:
        if event["event"] == "quantum_queued":
            queued_us[event["job"], event["work"]] = event["at_us"]
        elif event["event"] == "quantum_started":
            waits_s.append((event["at_us"] - queued_us[event["job"], event["work"]]) / 1e6)
    mean_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
    return {"task_wait_mean_s": round(mean_s, 6), "task_wait_max_s": max(waits_s, default=0.0)}


def _used_nodes_s(history: History) -> float:
    tasks = [interval for interval in history.intervals if interval.kind in ("task", "spare")]

    def was_used(held: Interval) -> bool:
        return any(
            task.resource == held.resource and task.begin_us < held.end_us and task.end_us > held.begin_us
            for task in tasks
        )

    return sum(held.seconds for held in history.intervals if held.kind == "node" and was_used(held))
