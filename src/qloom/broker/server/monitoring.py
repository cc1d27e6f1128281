"""For those who watch the broker: `/healthz`, and `/metrics` for Prometheus.

Anybody may ask, so both name devices and final states, and nobody's tasks, jobs, users, projects, paths or error
texts. Those are in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from qloom.broker.queue.task import FINAL
from qloom.broker.service import BrokerService

FAILED = ("error", "offline")  # states of a device that nobody has planned
SECONDS = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
COMMIT_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1)


@dataclass(frozen=True)
class Health:
    """`ok`; `degraded`: it serves, but a device or the hook fails; `failing`: it accepts nothing."""

    status: str
    reasons: list[str] = field(default_factory=list)


def health(broker: BrokerService) -> Health:
    """How a broker is now."""
    reasons = [f"QPU {name} is {state}" for name, state in broker.monitor.states.items() if state in FAILED]
    reasons += [f"the hook fails for QPU {name}" for name in broker.monitor.failing_hooks()]
    if not broker.database.writable:
        return Health("failing", ["the store cannot be written", *reasons])
    return Health("degraded" if reasons else "ok", reasons)


class BrokerMetrics:
    """Listens to a broker; `page` is what /metrics shows."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._since_us = broker.time.now_us()
        self.registry = CollectorRegistry()
        label = ["device"]
        self._ended = Counter("qloom_tasks", "Tasks that are over.", ["device", "state"], registry=self.registry)
        self._wait = Histogram(
            "qloom_task_wait_seconds", "From submission to execution.", label, buckets=SECONDS, registry=self.registry
        )
        self._run = Histogram(
            "qloom_task_run_seconds", "Execution of tasks.", label, buckets=SECONDS, registry=self.registry
        )
        self._busy = Counter("qloom_device_busy_seconds", "Seconds of execution.", label, registry=self.registry)
        self._commit = Histogram(
            "qloom_store_commit_seconds", "Commits, with their fsync.", buckets=COMMIT_S, registry=self.registry
        )
        for name in broker.specs:
            self._busy.labels(name)
        broker.feed.observe = self._observe
        broker.database.on_commit = self._commit.observe
        self.registry.register(self)

    def page(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _observe(self, event: dict[str, Any]) -> None:
        if event["event"] != "task" or event["state"] not in FINAL:
            return
        device, began_us = event["device"], event["executing_us"]
        self._ended.labels(device, event["state"]).inc()
        if began_us is not None:
            self._wait.labels(device).observe(max(0, began_us - event["submitted_us"]) / 1e6)
            ran_s = max(0, event["ended_us"] - began_us) / 1e6
            self._run.labels(device).observe(ran_s)
            self._busy.labels(device).inc(ran_s)

    def collect(self) -> Iterable[Metric]:
        """How things stand at this moment."""
        broker = self._broker
        running = dict.fromkeys(broker.specs, 0)
        queued = dict.fromkeys(broker.specs, 0)
        for task in broker.registry.tasks.values():
            (queued if task.state == "queued" else running)[task.device] += 1
        sessions = dict.fromkeys(broker.specs, 0)
        for session in broker.registry.sessions.values():
            sessions[session.device] += session.state == "open"
        up_s = max(1e-6, (broker.time.now_us() - self._since_us) / 1e6)
        writable = GaugeMetricFamily("qloom_store_writable", "Whether the broker can store what it accepts.")
        writable.add_metric([], float(broker.database.writable))
        yield writable
        failing = broker.monitor.failing_hooks()
        for name, text, values in (
            ("qloom_hook_failing", "Whether the hook fails.", {name: int(name in failing) for name in queued}),
            ("qloom_queue_length", "Tasks that wait.", queued),
            ("qloom_tasks_on_device", "Tasks that are with a device.", running),
            ("qloom_sessions_open", "Sessions that hold a device or a share.", sessions),
            ("qloom_device_shares", "vQPUs offered.", {name: broker.core.shares(name) for name in queued}),
            (
                "qloom_device_up",
                "Whether tasks are started.",
                {name: int(broker.core.is_up(name)) for name in queued},
            ),
            (
                "qloom_device_utilisation",
                "Busy part of the time since the broker started, of all lanes.",
                {name: self._busy_s(name) / up_s / broker.specs[name].lanes for name in queued},
            ),
        ):
            family = GaugeMetricFamily(name, text, labels=["device"])
            for device, value in values.items():
                family.add_metric([device], float(value))
            yield family

    def _busy_s(self, device: str) -> float:
        """Tasks that are over, and what has run of the others."""
        now_us = self._broker.time.now_us()
        over_s: float = self._busy.labels(device)._value.get()
        return over_s + sum(
            (now_us - task.executing_us) / 1e6
            for task in self._broker.registry.tasks.values()
            if task.device == device and task.executing_us is not None and task.state == "executing"
        )
