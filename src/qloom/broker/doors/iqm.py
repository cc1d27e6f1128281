"""IQM Server's API v1, as iqm-client and its Qiskit adapter speak it: architecture, calibration sets, jobs.

A device behind this door is a gate machine with the native gates r (IQM's prx) and cz and a coupling graph; circuits
that are off the graph are refused. The client allows no path before `api/v1`, so that is where this door is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from qloom.broker.doors.door import Door, View, caller_of, named_uuid, vendor_id
from qloom.broker.doors.iqm_circuits import counts_of, measurements_of, read_job
from qloom.broker.doors.iqm_machines import (
    architecture,
    calibration_set,
    quality_metrics,
    qubit_names,
    static_architecture,
)
from qloom.broker.problems import NotFound, status_of
from qloom.broker.requests import Caller, TaskRequest
from qloom.broker.server.entrances import ErrorReply, Headers
from qloom.device import Description
from qloom.errors import InputError, QloomError
from qloom.model import JsonText
from qloom.version import __version__

SOURCE = "qloom"
STATES = {"executing": "processing", "done": "completed", "cancelled": "cancelled", "failed": "failed",
          "expired": "failed"}  # fmt: skip
NATIVE = ("r", "cz")
ARTIFACTS = ("measurements", "measurement_counts")


class IqmDoor(Door):
    """For `iqm-client` and `qiskit-iqm`: a token of the broker is the client's token."""

    name = "iqm"
    path = "/api/v1"

    @classmethod
    def check_device(cls, device: Description) -> None:
        """See `Door.check_device`."""
        target = device.target
        native = [gate.name for gate in target.gates] if target is not None else []
        if "openqasm3" not in device.payloads or any(gate not in native for gate in NATIVE):
            raise InputError(
                f"doors.iqm: QPU {device.name} is no gate machine with the native gates {' and '.join(NATIVE)}",
                hint='an emulated one has profile = "iqm-20"',
            )

    def credential(self, headers: Headers) -> str | None:
        """See `Door.credential`."""
        given = headers.get(b"authorization")
        return None if given is None else given.decode("latin-1")

    def takes_tasks(self, path: str) -> bool:
        """See `Entrance.takes_tasks`."""
        return path.startswith(f"{self.path}/jobs/") and path.endswith("/circuit")

    def reply(self, error: QloomError) -> ErrorReply:
        """See `Entrance.reply`."""
        return ErrorReply(status_of(error), json.dumps(_error(error)).encode())

    def routes(self) -> list[Route]:
        """See `Door.routes`."""
        sets = "/calibration-sets/{computer}/{set}"
        return [
            Route("/about", self.about),
            Route("/quantum-computers", self.computers),
            Route("/quantum-computers/{computer}/health", self.health),
            Route("/quantum-computers/{computer}/artifacts/about", self.about),
            Route("/quantum-computers/{computer}/artifacts/static-quantum-architectures", self.static),
            Route(sets, self.calibration_set),
            Route(f"{sets}/dynamic-quantum-architecture", self.dynamic),
            Route(f"{sets}/metrics", self.metrics),
            Route("/jobs/{computer}/circuit", self.submit_circuits, methods=["POST"]),
            Route("/jobs/{id}", self.job, methods=["GET"]),
            Route("/jobs/{id}/cancel", self.cancel, methods=["POST"]),
            Route("/jobs/{id}/artifacts/{artifact}", self.artifact),
        ]

    # Quantum computers

    async def about(self, request: Request) -> Response:
        """Which software answers."""
        return JSONResponse({"version": __version__, "software_versions": {SOURCE: __version__}})

    async def computers(self, request: Request) -> Response:
        """All devices behind this door."""
        found = [
            {"id": named_uuid("computer", name), "alias": name, "display_name": name, "proxy_path": None}
            for name in self.devices
        ]
        return JSONResponse({"quantum_computers": found})

    async def health(self, request: Request) -> Response:
        """Whether a device starts tasks, and its state."""
        view = self.broker.devices.view(self._computer(request).name)
        return JSONResponse({"status": "healthy" if view["up"] else "unhealthy", "state": view["state"]})

    async def static(self, request: Request) -> Response:
        """What a device is made of."""
        return JSONResponse([static_architecture(self._computer(request))])

    async def dynamic(self, request: Request) -> Response:
        """Gates and where they work, under the current calibration."""
        return JSONResponse(architecture(self._computer(request), self._set(request)))

    async def calibration_set(self, request: Request) -> Response:
        """The current calibration: durations of gates."""
        return JSONResponse(calibration_set(self._computer(request), self._set(request), self._calibration(request)))

    async def metrics(self, request: Request) -> Response:
        """How good the current calibration is: fidelities, errors of readout, coherence times."""
        return JSONResponse(quality_metrics(self._computer(request), self._set(request), self._calibration(request)))

    def _computer(self, request: Request) -> Description:
        wanted = request.path_params["computer"]
        named = (one for name, one in self.devices.items() if wanted in (name, named_uuid("computer", name)))
        found = next(named, None)
        if found is None:
            raise NotFound(f"there is no quantum computer {wanted[:100]!r}", hint=", ".join(self.devices))
        return found

    def _calibration(self, request: Request) -> str | None:
        return self._current(self._computer(request).name)

    def _current(self, device: str) -> str | None:
        calibration: str | None = self.broker.devices.view(device)["calibration"]
        return calibration

    def _set(self, request: Request) -> str:
        """The id of the calibration set that a request names: only the current one is known here."""
        name, wanted = self._computer(request).name, request.path_params["set"]
        current = _set_id(name, self._current(name))
        if wanted not in ("default", current):
            raise NotFound(f"calibration set {wanted[:100]} is not the current one of {name}", hint=current)
        return current

    # Jobs

    async def submit_circuits(self, request: Request) -> Response:
        """Queue a batch of circuits as one task."""
        device, who = self._computer(request), caller_of(request)
        if request.query_params.get("use_timeslot", "false") != "false":
            raise InputError("there are no time slots here", hint="open a session of the broker instead")
        settings = {
            "coding": request.headers.get("content-encoding", ""),
            "max_bytes": self.broker.max_bytes,
            "device": device.name,
            "qubits": qubit_names(device),
            "calibration_set": _set_id(device.name, self._current(device.name)),
            "max_answer_bytes": device.max_answer_bytes,
        }
        [outcome] = await self.submit(who, await request.body(), settings)
        if isinstance(outcome, QloomError):
            raise outcome
        return JSONResponse(self._job(who, vendor_id(outcome["id"])), 201)

    async def job(self, request: Request) -> Response:
        """How a job stands."""
        return JSONResponse(self._job(caller_of(request), request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        """A job is no longer wanted."""
        who, id = caller_of(request), request.path_params["id"]
        own, _ = self.note(who, id)
        await self.tasks.cancel(who, own)
        return JSONResponse(self._job(who, id))

    async def artifact(self, request: Request) -> Response:
        """The measurements of a job that is completed, by shot or counted."""
        who, id, artifact = caller_of(request), request.path_params["id"], request.path_params["artifact"]
        own, note = self.note(who, id)
        view = self.tasks.result(who, own)
        if artifact not in ARTIFACTS or view["state"] != "done":
            raise NotFound(f"job {id} has no {artifact[:100]}", hint=f"it is {STATES.get(view['state'], 'waiting')}")
        text = await self.answer(who, view["result"], {**note, "artifact": artifact, "seed": own})
        return Response(text, media_type="application/json")

    def _job(self, who: Caller, id: str) -> dict[str, Any]:
        own, note = self.note(who, id)
        view = self.tasks.status(who, own)
        status = STATES.get(view["state"], "waiting")
        calibration = _set_id(view["device"], view["calibration"]) if view["calibration"] else note["calibration_set"]
        reason = view["reason"] or f"the task is {view['state']}"
        return {
            "id": id,
            "type": "circuit",
            "status": status,
            "queue_position": view.get("position", 0) if status == "waiting" else None,
            "execution": None,
            "compilation": {"calibration_set_id": calibration},
            "messages": [],
            "errors": [{"source": SOURCE, "error_code": None, "message": reason}] if status == "failed" else [],
            "timeline": _timeline(view, status),
            "artifacts": [{"type": kind} for kind in ARTIFACTS] if status == "completed" else [],
        }

    # Translation, perhaps in another process

    @staticmethod
    def read_tasks(body: bytes, settings: Mapping[str, Any]) -> list[TaskRequest | QloomError]:
        """See `Door.read_tasks`."""
        return [read_job(body, settings)]

    @staticmethod
    def write_answer(result: JsonText, settings: Mapping[str, Any]) -> str:
        """See `Door.write_answer`."""
        answers = json.loads(result)
        if settings["artifact"] == "measurement_counts":
            return json.dumps([counts_of(answer) for answer in answers])
        return json.dumps([measurements_of(answer, f"{settings['seed']}.{n}") for n, answer in enumerate(answers)])


def _set_id(device: str, calibration: str | None) -> str:
    return named_uuid("calibration", device, calibration or "")


def _timeline(view: View, status: str) -> list[dict[str, str]]:
    steps = (("created", "submitted_us"), ("execution_started", "executing_us"), (status, "ended_us"))
    return [
        {"source": SOURCE, "status": step, "timestamp": datetime.fromtimestamp(view[key] / 1e6, UTC).isoformat()}
        for step, key in steps
        if view[key] is not None
    ]


def _error(error: QloomError) -> dict[str, str]:
    said = f"{error.message} ({error.hint})" if error.hint else error.message
    return {"message": said, "error_code": type(error).__name__, "source": SOURCE}
