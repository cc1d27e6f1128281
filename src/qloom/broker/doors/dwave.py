"""D-Wave's SAPI, as dwave-cloud-client speaks it: solvers, problems in the "qp" encoding, long polls, cancellation.

A device behind this door takes QUBOs and has a coupling graph. A problem gives a bias to each qubit that it uses and
to each coupler between two of them, so that nothing off the graph can be said. The times of the answers are those
that the device bills, and `estimate_qpu_access_time` of the client computes with the same time scale.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from qloom.broker.doors.annealers import (
    TimeScale,
    graph_id,
    identity,
    known_couplings,
    properties,
    solver_settings,
)
from qloom.broker.doors.door import Door, caller_of, target_of, vendor_id
from qloom.broker.doors.qp import encode_answer, problem_task, read_problems
from qloom.broker.doors.translating import require_few
from qloom.broker.problems import NotFound, status_of
from qloom.broker.requests import Caller, TaskRequest
from qloom.broker.server.entrances import ErrorReply, Headers
from qloom.device import Description
from qloom.errors import InputError, PayloadError, QloomError
from qloom.model import JsonText

MEDIA_TYPE = "application/vnd.dwave.sapi.{}+json; version=3.0.0"
STATES = {"executing": "IN_PROGRESS", "done": "COMPLETED", "cancelled": "CANCELLED", "failed": "FAILED",
          "expired": "FAILED"}  # fmt: skip
AWAY = ("maintenance", "error", "offline")
FULL_LOAD_S = 3600.0  # an expected wait of this or more is a load of 1
MOST_IDS = 1000  # of one question


class DwaveDoor(Door):
    """For `dwave-cloud-client` and all that uses it: a token of the broker is the client's token."""

    name = "dwave"
    single = (*Door.single, b"x-auth-token")

    @classmethod
    def check_device(cls, device: Description) -> None:
        """See `Door.check_device`."""
        if "qubo" not in device.payloads or device.target is None or not known_couplings(device.target):
            raise InputError(
                f"doors.dwave: QPU {device.name} is no annealer with a coupling graph",
                hint='an emulated one has profile = "chimera"',
            )

    def credential(self, headers: Headers) -> str | None:
        """See `Door.credential`."""
        given = headers.get(b"x-auth-token")
        return None if given is None else f"Bearer {given.decode('latin-1')}"

    def takes_tasks(self, path: str) -> bool:
        """See `Entrance.takes_tasks`."""
        return path == f"{self.path}/problems/"

    def reply(self, error: QloomError) -> ErrorReply:
        """See `Entrance.reply`."""
        return ErrorReply(status_of(error), json.dumps(_error(error)).encode())

    def routes(self) -> list[Route]:
        """See `Door.routes`."""
        return [
            Route("/solvers/remote/", self.solvers),
            Route("/solvers/remote/{id}/", self.solver),
            Route("/solvers/remote/{id}", self.solver),
            Route("/problems/", self.submit_problems, methods=["POST"]),
            Route("/problems/", self.statuses, methods=["GET"]),
            Route("/problems/", self.cancel_problems, methods=["DELETE"]),
            Route("/problems/{id}/", self.problem, methods=["GET"]),
            Route("/problems/{id}", self.problem, methods=["GET"]),
            Route("/problems/{id}/", self.cancel_problem, methods=["DELETE"]),
            Route("/problems/{id}", self.cancel_problem, methods=["DELETE"]),
        ]

    # Solvers

    async def solvers(self, request: Request) -> Response:
        """All devices behind this door, with the fields that are asked for."""
        wanted = request.query_params.get("filter", "all")
        return _typed("solver-definition-list", [_filtered(self._definition(name), wanted) for name in self.devices])

    async def solver(self, request: Request) -> Response:
        """One device, by its name or by its name and graph."""
        wanted = request.query_params.get("filter", "all")
        name, _, graph = request.path_params["id"].partition(";graph_id=")
        found = self.devices.get(name)
        if found is None or graph not in ("", graph_id(found)):
            raise NotFound(f"there is no solver {request.path_params['id'][:200]!r}")
        return _typed("solver-definition", _filtered(self._definition(name), wanted))

    def _definition(self, name: str) -> dict[str, Any]:
        view = self.broker.devices.view(name)
        offline = view["drained"] or view["state"] in AWAY
        return {
            "identity": identity(self.devices[name]),
            "status": "OFFLINE" if offline else "ONLINE",
            "description": view["notes"] or f"{name}, through qloom's broker",
            "avg_load": min(1.0, (view["expected_wait_s"] or 0.0) / FULL_LOAD_S),
            "properties": properties(self.devices[name]),
        }

    # Problems

    async def submit_problems(self, request: Request) -> Response:
        """Queue problems: for each its status, or its error."""
        settings = {
            "coding": request.headers.get("content-encoding", ""),
            "max_bytes": self.broker.max_bytes,
            "solvers": {name: solver_settings(device) for name, device in self.devices.items()},
        }
        who = caller_of(request)
        outcomes = await self.submit(who, await request.body(), settings)
        return _typed(
            "problems",
            [
                _error(outcome) if isinstance(outcome, QloomError) else self._status(who, vendor_id(outcome["id"]))
                for outcome in outcomes
            ],
        )

    async def statuses(self, request: Request) -> Response:
        """How problems stand; with `timeout`, once one of them is over or the time is up."""
        who = caller_of(request)
        ids = request.query_params.get("id", "").split(",")
        if not 1 <= len(ids) <= MOST_IDS or not ids[0]:
            raise InputError(f"id is a list of 1 to {MOST_IDS} problems")
        await self.wait_any(who, self._known(who, ids), _seconds(request.query_params.get("timeout", "0")))
        return _typed("problems", [self._status_or_error(who, id) for id in ids])

    async def problem(self, request: Request) -> Response:
        """How a problem stands, with its answer if it is completed."""
        who, id = caller_of(request), request.path_params["id"]
        status = self._status(who, id)
        if status["status"] == "COMPLETED":
            own, note = self.note(who, id)
            view = self.tasks.result(who, own)
            device = self.devices[view["device"]]
            timing = TimeScale.of(device).spent(view["billed_s"] or 0.0, note["reads"], note["annealing_us"])
            settings = {**note, "qubits": target_of(device).qubits, "timing": timing}
            answer = await self.answer(who, view["result"], settings)
            text = f'{json.dumps(status)[:-1]}, "answer": {answer}}}'
            return Response(text, media_type=MEDIA_TYPE.format("problem"))
        return _typed("problem", status)

    async def cancel_problem(self, request: Request) -> Response:
        """A problem is no longer wanted."""
        return _typed("problem", await self._cancel(caller_of(request), request.path_params["id"]))

    async def cancel_problems(self, request: Request) -> Response:
        """Several problems are no longer wanted: for each how it stands, or why it cannot be cancelled."""
        who = caller_of(request)
        try:
            ids = json.loads(await request.body())
        except (ValueError, RecursionError):
            ids = None
        if not isinstance(ids, list) or len(ids) > MOST_IDS or not all(isinstance(id, str) for id in ids):
            raise PayloadError(f"a list of at most {MOST_IDS} problems was expected")
        outcomes = []
        for id in ids:
            try:
                outcomes.append(await self._cancel(who, id))
            except QloomError as error:
                outcomes.append({"id": id, **_error(error)})
        return _typed("problems", outcomes)

    async def _cancel(self, who: Caller, id: str) -> dict[str, Any]:
        own, _ = self.note(who, id)
        await self.tasks.cancel(who, own)
        return self._status(who, id)

    def _known(self, who: Caller, ids: Sequence[str]) -> list[str]:
        known = []
        for id in ids:
            try:
                known.append(self.note(who, id)[0])
            except NotFound:
                continue
        return known

    def _status_or_error(self, who: Caller, id: str) -> dict[str, Any]:
        try:
            return self._status(who, id)
        except NotFound as error:
            return {"id": id[:100], **_error(error)}

    def _status(self, who: Caller, id: str) -> dict[str, Any]:
        own, note = self.note(who, id)
        view = self.tasks.status(who, own)
        if view["device"] not in self.devices:  # it was switched off here since
            raise NotFound(f"there is no problem {id}")
        status: dict[str, Any] = {
            "id": id,
            "type": note["type"],
            "solver": identity(self.devices[view["device"]]),
            "label": note["label"],
            "submitted_on": _time(view["submitted_us"]),
            "status": STATES.get(view["state"], "PENDING"),
        }
        if view["ended_us"] is not None:
            status["solved_on"] = _time(view["ended_us"])
        if status["status"] == "FAILED":
            status["error_message"] = view["reason"] or f"the task is {view['state']}"
        return status

    # Translation, perhaps in another process

    @staticmethod
    def read_tasks(body: bytes, settings: Mapping[str, Any]) -> list[TaskRequest | QloomError]:
        """See `Door.read_tasks`."""
        found: list[TaskRequest | QloomError] = []
        problems = read_problems(body)
        require_few(problems)
        for problem in problems:
            try:
                found.append(problem_task(problem, settings["solvers"]))
            except QloomError as error:
                found.append(error)
        return found

    @staticmethod
    def write_answer(result: JsonText, settings: Mapping[str, Any]) -> str:
        """See `Door.write_answer`."""
        raw, most = settings["raw"], settings["max_answers"]
        answer = encode_answer(json.loads(result), settings["qubits"], raw=raw, max_answers=most)
        return json.dumps({**answer, "timing": settings["timing"]})


def _filtered(definition: dict[str, Any], wanted: str) -> dict[str, Any]:
    """The fields that a filter such as `all,-status` or `none,+identity` leaves."""
    kept = dict(definition)
    for word in wanted.split(","):
        if word in ("all", "none"):
            kept = dict(definition) if word == "all" else {}
        elif word[:1] == "-":
            kept.pop(word[1:], None)
        elif word.lstrip("+ ") in definition:  # a plus sign that was not escaped is a space
            kept[word.lstrip("+ ")] = definition[word.lstrip("+ ")]
    return kept


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InputError(f"timeout is a number of seconds, not {text[:50]!r}")
    return seconds


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat()


def _error(error: QloomError) -> dict[str, Any]:
    said = f"{error.message} ({error.hint})" if error.hint else error.message
    return {"error_code": status_of(error), "error_msg": said}


def _typed(kind: str, content: Any) -> Response:
    return Response(json.dumps(content), media_type=MEDIA_TYPE.format(kind))
