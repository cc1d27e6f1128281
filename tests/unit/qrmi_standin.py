"""A stand-in of the `qrmi` package: the same names and calls, and faults on demand.

A vendor lives in a folder (so that it outlives the process that talks to it). The folder is the resource's id with
`QRMI_STANDIN` as its root; `faults.json` in it says what goes wrong, how often.
"""

from __future__ import annotations

import enum
import json
import os
import time
from pathlib import Path


class QrmiError(RuntimeError):
    pass


class TaskNotFoundError(QrmiError):
    pass


class TaskNotReadyError(QrmiError):
    pass


class InvalidInputError(QrmiError):
    pass


class UnsupportedFunctionError(QrmiError):
    pass


class TaskStatus(enum.Enum):
    Queued = 0
    Running = 1
    Completed = 2
    Failed = 3
    Cancelled = 4

    def __str__(self):
        return f"TaskStatus.{self.name}"


class ResourceType(enum.Enum):
    IBMQuantumSystem = 0
    IBMQiskitRuntimeService = 1
    IBMQuantumComputeService = 2
    PasqalCloud = 3
    PasqalLocal = 4
    IQMServer = 5
    AliceBobFelis = 6
    OQTOPUS = 7


class Payload:
    class PasqalCloud:
        def __init__(self, sequence, job_runs):
            self.sequence, self.job_runs = sequence, job_runs

    class QiskitPrimitive:
        def __init__(self, input, program_id):
            self.input, self.program_id = input, program_id

    class IQMServer:
        def __init__(self, iqmjson, job_type, use_timeslot, tag):
            self.iqmjson, self.job_type, self.use_timeslot, self.tag = iqmjson, job_type, use_timeslot, tag


class ResourceStatusCode(enum.Enum):
    Online = 0
    Offline = 1
    Paused = 2

    def __str__(self):
        return f"ResourceStatusCode.{self.name}"


class ResourceStatus:
    def __init__(self, status, busy):
        self.status, self.busy = status, busy


class TaskResult:
    def __init__(self, value):
        self.value = value


Target = TaskResult


class QuantumResource:
    def __init__(self, resource_id, resource_type):
        self._vendor = Path(os.environ["QRMI_STANDIN"]) / resource_id
        self._vendor.mkdir(parents=True, exist_ok=True)
        self._key = None

    @classmethod
    def from_config(cls, resource_id, resource_type, config):
        resource = cls(resource_id, resource_type)
        resource._key = config.get("KEY")
        return resource

    def _fault(self, name):
        """Whether this fault happens now; each is used up."""
        path = self._vendor / "faults.json"
        faults = json.loads(path.read_text()) if path.exists() else {}
        if faults.get(name, 0) <= 0:
            return False
        faults[name] -= 1
        path.write_text(json.dumps(faults))
        return True

    def _task(self, task_id):
        path = self._vendor / f"{task_id}.json"
        if not path.exists():
            raise TaskNotFoundError(f"no task {task_id}")
        return json.loads(path.read_text())

    def acquire(self):
        if self._fault("acquire_raises"):
            raise QrmiError(f"login with {self._key} failed")
        (self._vendor / "held").write_text("session-1")
        return "session-1"

    def release(self, id):
        (self._vendor / "held").unlink()

    def is_accessible(self):
        return not (self._vendor / "offline").exists()

    def status(self):
        if self._fault("no_status"):
            raise UnsupportedFunctionError("status is not supported")
        for name, code in (("offline", ResourceStatusCode.Offline), ("paused", ResourceStatusCode.Paused)):
            if (self._vendor / name).exists():
                return ResourceStatus(code, None)
        return ResourceStatus(ResourceStatusCode.Online, (self._vendor / "busy").exists())

    def task_start(self, payload):
        if self._fault("start_invalid"):
            raise InvalidInputError("the sequence is not for this device")
        if self._fault("start_raises"):
            raise QrmiError("connection reset")
        if self._fault("start_slow"):
            time.sleep(1.0)
        number = len(list(self._vendor.glob("task-*.json"))) + 1
        task = {"payload": type(payload).__name__, "fields": vars(payload), "began": time.time()}
        (self._vendor / f"task-{number}.json").write_text(json.dumps(task))
        if self._fault("start_dies"):  # taken, but the process that asked is no more
            os._exit(9)
        if self._fault("start_lost"):
            raise QrmiError("connection reset after the request was sent")
        return f"task-{number}"

    def task_status(self, task_id):
        if self._fault("status_dies"):
            os._exit(9)
        if self._fault("status_raises"):
            raise QrmiError("gateway timeout")
        if self._fault("status_hangs"):
            time.sleep(60)
        task = self._task(task_id)
        if task.get("stopped"):
            return TaskStatus.Cancelled
        if self._fault("status_flaps"):
            return TaskStatus.Queued
        if time.time() - task["began"] < float(os.environ.get("QRMI_STANDIN_S", "0.2")):
            return TaskStatus.Running
        return TaskStatus.Failed if self._fault("task_fails") else TaskStatus.Completed

    def task_result(self, task_id):
        if self._fault("result_late"):
            raise TaskNotReadyError("not ready yet")
        return TaskResult(json.dumps({"counter": {"01": self._task(task_id)["fields"].get("job_runs", 1)}}))

    def task_stop(self, task_id):
        task = self._task(task_id)
        (self._vendor / f"{task_id}.json").write_text(json.dumps({**task, "stopped": True}))

    def task_logs(self, task_id):
        return ""

    def target(self):
        if self._fault("target_raises"):
            raise QrmiError("gateway timeout")
        return Target(json.dumps(self._said("target", {"qubits": 100})))

    def metadata(self):
        return self._said("metadata", {"vendor": "stand-in"})

    def _said(self, name, usual):
        path = self._vendor / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else usual
