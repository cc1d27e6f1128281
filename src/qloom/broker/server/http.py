"""The broker over HTTP: REST with OpenAPI, and server-sent events. All decisions are the broker's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi import Path as PathPart
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from qloom.broker.api.devices import DeviceApi
from qloom.broker.api.forms import EvictForm, Name, Problem, SessionForm, SharesForm, TaskForm
from qloom.broker.api.oversight import Oversight
from qloom.broker.api.reading import LoopReader, TaskReader, WrongForm
from qloom.broker.api.sessions import SessionApi
from qloom.broker.api.tasks import TaskApi
from qloom.broker.auth.callers import Authenticator
from qloom.broker.config_parts import AuthPart, LimitsPart
from qloom.broker.feed import stream_events
from qloom.broker.problems import status_of
from qloom.broker.requests import Caller, hold_named
from qloom.broker.server.entrances import VendorEntrance, problem
from qloom.broker.server.gate import Gate
from qloom.broker.server.monitoring import BrokerMetrics, health
from qloom.broker.service import BrokerService
from qloom.errors import QloomError
from qloom.version import __version__

LONGEST_WAIT_S = 60.0  # of one request; clients ask again

Answer = dict[str, Any]
Id = Annotated[str, PathPart(max_length=100)]
Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for it.")]
OneDevice = Annotated[str | None, Query(max_length=100, description="One device only.")]
Key = Annotated[Name | None, Header(alias="Idempotency-Key")]
LastEvent = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)]


async def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["caller"]
    return caller


Who = Annotated[Caller, Depends(_caller)]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 503, 507)
}


TASK_BODY: dict[str, Any] = {
    "required": True,
    "content": {"application/json": {"schema": TaskForm.model_json_schema()}},
}


def make_app(
    broker: BrokerService,
    auth: Authenticator,
    limits: LimitsPart | None = None,
    proxy_header: str = AuthPart().proxy_header,
    reader: TaskReader | None = None,
    doors: Sequence[VendorEntrance] = (),
) -> FastAPI:
    """The service around a broker that was started; `reader` reads the bodies of submissions, `doors` are open."""
    app = FastAPI(
        title="qloom broker",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
        redirect_slashes=False,
    )
    app.add_middleware(
        Gate,
        auth=auth,
        limits=limits or LimitsPart(),
        proxy_header=proxy_header,
        count_tasks=lambda: len(broker.registry.tasks),
        doors=doors,
    )
    _report_errors(app)
    _tasks(app, broker.tasks, reader or LoopReader())
    _sessions(app, broker.sessions)
    _oversight(app, broker.oversight)
    _devices(app, broker.devices)
    _watching(app, broker, auth)
    for door in doors:
        app.mount(door.path, door.app())
    return app


def _report_errors(app: FastAPI) -> None:
    @app.exception_handler(QloomError)
    async def known(request: Request, error: QloomError) -> JSONResponse:
        return JSONResponse(problem(error), status_of(error))

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(step)[:100] for step in first["loc"])
        return JSONResponse({"error": "InputError", "message": f"{place}: {first['msg']}", "hint": None}, 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        body = {"error": "InputError", "message": str(error.detail), "hint": "see /openapi.json"}
        return JSONResponse(body, error.status_code, headers=error.headers)


def _tasks(app: FastAPI, tasks: TaskApi, reader: TaskReader) -> None:
    @app.post("/v1/tasks", status_code=201, openapi_extra={"requestBody": TASK_BODY})
    async def submit(who: Who, request: Request, idempotency_key: Key = None, wait: Wait = 0.0) -> Response:
        """Queue a task. It is durable when this is answered; with `wait`, the answer may hold its result."""
        if not _is_json(request.headers.get("content-type", "")):
            wrong = {"loc": ("body",), "msg": "must be JSON, with the header Content-Type: application/json"}
            raise RequestValidationError([wrong])
        try:
            task = await reader.read(who.user, await request.body(), idempotency_key)
        except WrongForm as error:
            raise RequestValidationError([{"loc": ("body", *error.place), "msg": error.message}]) from None
        view = await tasks.submit(who, task)
        return _with_result(await tasks.wait(who, view["id"], wait) if wait else view, 201)

    @app.get("/v1/tasks/{id}")
    async def status(who: Who, id: Id, wait: Wait = 0.0) -> Answer:
        """How a task stands: state, place in the queue, expected wait. With `wait`, once it executes or is over."""
        return await tasks.wait_begun(who, id, wait) if wait else tasks.status(who, id)

    @app.get("/v1/tasks/{id}/result")
    async def result(who: Who, id: Id, wait: Wait = 0.0) -> Response:
        """The result of a task that is done; otherwise how it stands. Can be read again until it is forgotten."""
        return _with_result(await tasks.wait(who, id, wait) if wait else tasks.result(who, id))

    @app.delete("/v1/tasks/{id}")
    async def cancel(who: Who, id: Id) -> Answer:
        """A task is no longer wanted."""
        return await tasks.cancel(who, id)


def _is_json(content_type: str) -> bool:
    """As FastAPI has it for the other forms: a page in a browser cannot send such a type unasked."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _with_result(view: Answer, status: int = 200) -> Response:
    """A view, with the result of a large task put in as the text that it is stored as."""
    result = view.pop("result", None)
    text = json.dumps(view)
    if result is not None:
        text = f'{text[:-1]}, "result": {result}}}'
    return Response(text, status, media_type="application/json")


def _sessions(app: FastAPI, sessions: SessionApi) -> None:
    @app.post("/v1/sessions", status_code=201)
    async def open_session(who: Who, form: SessionForm, wait: Wait = 0.0) -> Answer:
        """Ask for a device or a share of it."""
        hold = hold_named(form.hold)
        options = {"project": form.project, "job": form.job, "key": form.key, "slurm_job": form.slurm_job}
        view = await sessions.open(who, form.device, hold, **options, shared=form.shared)
        return await sessions.wait_open(who, view["id"], wait) if wait else view

    @app.get("/v1/sessions/{id}")
    async def session(who: Who, id: Id, wait: Wait = 0.0) -> Answer:
        """Whether a session of yours, or a shared one, is waiting, open or closed. Its owner's asking keeps it."""
        return await sessions.wait_open(who, id, wait) if wait else sessions.view(who, id)

    @app.delete("/v1/sessions/{id}")
    async def close_session(who: Who, id: Id) -> Answer:
        """End a session and cancel what is left of it."""
        return await sessions.close(who, id)


def _oversight(app: FastAPI, oversight: Oversight) -> None:
    @app.get("/v1/tasks")
    async def tasks(who: Who, device: OneDevice = None) -> list[Answer]:
        """Tasks of your projects that are not over; all, with their owners, for administrators."""
        return oversight.tasks(who, device)

    @app.get("/v1/sessions")
    async def sessions(who: Who, device: OneDevice = None) -> list[Answer]:
        """Sessions of yours, and shared ones, that are not closed; all, with their owners, for administrators."""
        return oversight.sessions(who, device)

    @app.post("/v1/tasks/{id}/hold")
    async def hold(who: Who, id: Id) -> Answer:
        """Keep a queued task from being started (administrators)."""
        return await oversight.hold(who, id)

    @app.post("/v1/tasks/{id}/release")
    async def release(who: Who, id: Id) -> Answer:
        """Let a task run that was held (administrators)."""
        return await oversight.release(who, id)

    @app.post("/v1/tasks/{id}/requeue")
    async def requeue(who: Who, id: Id) -> Answer:
        """Take a task back from its device and queue it again (administrators)."""
        return await oversight.requeue(who, id)

    @app.post("/v1/evict/{id}")
    async def evict(who: Who, id: Id, form: EvictForm) -> Answer:
        """Close a session, or cancel a task, of anybody (administrators)."""
        return await oversight.evict(who, id, form.reason)


def _devices(app: FastAPI, api: DeviceApi) -> None:
    @app.get("/v1/devices")
    async def devices(who: Who) -> list[Answer]:
        """All devices."""
        return api.views()

    @app.get("/v1/devices/{name}")
    async def device(who: Who, name: Id) -> Answer:
        """One device: what it takes, how it stands, what it promises."""
        return api.view(name)

    @app.get("/v1/queue")
    async def queue(who: Who) -> Answer:
        """Counts for each device, and the places of your own tasks."""
        return api.queue(who)

    @app.post("/v1/devices/{name}/drain")
    async def drain(who: Who, name: Id) -> Answer:
        """Start nothing new on a device (administrators)."""
        return await api.drain(who, name, True)

    @app.post("/v1/devices/{name}/resume")
    async def resume(who: Who, name: Id) -> Answer:
        """Start tasks again (administrators)."""
        return await api.drain(who, name, False)

    @app.put("/v1/devices/{name}/shares")
    async def shares(who: Who, name: Id, form: SharesForm) -> Answer:
        """Offer another number of vQPUs (administrators)."""
        return await api.set_shares(who, name, form.shares)

    @app.get("/v1/reconcile")
    async def reconcile(who: Who, device: OneDevice = None) -> list[Answer]:
        """Where the vendors' accounting and ours differ (administrators)."""
        return await api.reconcile(who, device)


def _watching(app: FastAPI, broker: BrokerService, auth: Authenticator) -> None:
    metrics = BrokerMetrics(broker)

    @app.get("/healthz")
    async def healthz(response: Response) -> Answer:
        """Whether the broker serves: `ok`, `degraded` with reasons, or `failing` and 503 if it accepts nothing."""
        now = health(broker)
        response.status_code = 503 if now.status == "failing" else 200
        return {"status": now.status, "reasons": now.reasons, "version": __version__}

    @app.get("/metrics", response_class=Response)
    async def scrape() -> Response:
        """For Prometheus."""
        return Response(metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/events", response_class=StreamingResponse)
    async def events(who: Who, last_event_id: LastEvent = None) -> StreamingResponse:
        """Changes of your tasks and sessions and of the devices, as server-sent events.

        With the id of the last event that was seen, those since then come first; `missed` says that some are gone.
        """
        stream = stream_events(broker.feed, who, last_event_id, auth.current)
        return StreamingResponse(stream, media_type="text/event-stream")
