"""What all doors have in common: a vendor's protocol in front of the broker's own API.

A door maps a vendor's credential to a caller of the site, a vendor's problem to a `TaskRequest`, and states, answers
and errors back to the vendor's form. Behind it everything is as for our own clients: queue, shares, budgets,
accounting. A door decides nothing, changes no circuit, and shows nobody a task that they could not see elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from qloom.aio import TaskScope
from qloom.broker.api.devices import DeviceApi
from qloom.broker.api.tasks import TaskApi
from qloom.broker.doors.translating import Translations
from qloom.broker.problems import NotFound, Unauthenticated
from qloom.broker.requests import Caller, TaskRequest
from qloom.broker.server.entrances import ErrorReply, Headers
from qloom.device import Description, DeviceTarget
from qloom.errors import QloomError
from qloom.model import JsonText

LONGEST_WAIT_S = 60.0  # of one request; clients ask again
NAMESPACE = uuid.UUID("5f0c7a3e-3c57-5d0b-9c53-4a6f3c1f7d10")  # of names that a vendor's protocol wants as UUIDs
TASK_ID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-8([0-9a-f])00-0{12}")

View = dict[str, Any]


@dataclass(frozen=True)
class BrokerParts:
    """What a door is given of the broker."""

    tasks: TaskApi
    devices: DeviceApi
    translations: Translations
    max_bytes: int  # of one request, decompressed


class Door(ABC):
    """A vendor's protocol. `read_tasks` and `write_answer` run in limited processes for what is large."""

    name: str
    path: str = ""  # that its requests begin with; /doors/NAME if it is not given
    single: tuple[bytes, ...] = (b"authorization", b"content-encoding")  # see `Entrance.single`

    def __init__(self, broker: BrokerParts, devices: Sequence[Description]) -> None:
        self.path = self.path or f"/doors/{self.name}"
        self.tasks, self.broker = broker.tasks, broker
        self.devices = {device.name: device for device in devices}

    # What each door says of itself

    @classmethod
    @abstractmethod
    def check_device(cls, device: Description) -> None:
        """Raise `InputError` for a device that this protocol cannot describe."""

    @abstractmethod
    def credential(self, headers: Headers) -> str | None:
        """The vendor's credential as an Authorization header; None if the request has none."""

    @abstractmethod
    def takes_tasks(self, path: str) -> bool:
        """See `Entrance.takes_tasks`."""

    @abstractmethod
    def reply(self, error: QloomError) -> ErrorReply:
        """See `Entrance.reply`."""

    @abstractmethod
    def routes(self) -> list[Route]:
        """The vendor's paths below the path of this door."""

    @staticmethod
    @abstractmethod
    def read_tasks(body: bytes, settings: Mapping[str, Any]) -> list[TaskRequest | QloomError]:
        """The tasks in a body, or why one of them cannot be taken. Pure: it may run in another process."""

    @staticmethod
    @abstractmethod
    def write_answer(result: JsonText, settings: Mapping[str, Any]) -> str:
        """A device's answer as the vendor's JSON. Pure: it may run in another process."""

    # What they share

    def authorization(self, headers: Headers) -> str:
        """See `Entrance.authorization`: nobody is known by the socket alone here."""
        if (given := self.credential(headers)) is None:
            raise Unauthenticated("no credential", hint="make a token with: qloom broker token")
        return given

    def app(self) -> Starlette:
        """The routes as an application, with errors in the vendor's form."""

        async def known(request: Request, error: Exception) -> Response:
            assert isinstance(error, QloomError)  # noqa: S101
            return self._response(error)

        async def other(request: Request, error: Exception) -> Response:
            return self._response(NotFound(f"there is no {request.method} {request.url.path[:200]} here"))

        app = Starlette(routes=self.routes(), exception_handlers={QloomError: known, HTTPException: other})
        app.router.redirect_slashes = False
        return app

    def _response(self, error: QloomError) -> Response:
        reply = self.reply(error)
        return Response(reply.body, reply.status, media_type=reply.content_type)

    async def submit(self, who: Caller, body: bytes, settings: Mapping[str, Any]) -> list[View | QloomError]:
        """Queue the tasks in a body: for each of them its view, or why it was refused."""
        found = await self.broker.translations.read(self.name, who.user, body, settings)
        outcomes: list[View | QloomError] = []
        for request in found:
            try:
                outcomes.append(request if isinstance(request, QloomError) else await self.tasks.submit(who, request))
            except QloomError as error:  # the others are taken
                outcomes.append(error)
        return outcomes

    async def answer(self, who: Caller, result: JsonText, settings: Mapping[str, Any]) -> str:
        """A device's answer as the vendor's JSON."""
        return await self.broker.translations.write(self.name, who.user, result, settings)

    def note(self, who: Caller, vendor_id: str) -> tuple[str, dict[str, Any]]:
        """The id of a task that came through this door, and what was kept with it; raises `NotFound` otherwise."""
        id = task_id(vendor_id)
        note = json.loads(self.tasks.note(who, id) or "{}")
        if note.get("door") != self.name:
            raise NotFound(f"there is no task {vendor_id}")
        return id, note

    async def wait_any(self, who: Caller, ids: Sequence[str], within_s: float) -> None:
        """Return when one of the tasks is over, or when the time is up."""
        if not ids or within_s <= 0:
            return
        scope = TaskScope()
        try:
            waits = [scope.start(self.tasks.wait(who, id)) for id in ids]
            await asyncio.wait(waits, timeout=min(within_s, LONGEST_WAIT_S), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await scope.aclose()


def caller_of(request: Request) -> Caller:
    """Who sent a request: the gate has found it out."""
    caller: Caller = request.scope["caller"]
    return caller


def target_of(device: Description) -> DeviceTarget:
    """What a device behind a door is made of: `check_device` has refused those that do not say."""
    assert device.target is not None  # noqa: S101
    return device.target


def vendor_id(id: str) -> str:
    """A task's id as a UUID (version 8, RFC 9562), as vendors' clients expect ids to be."""
    return f"{id[:8]}-{id[8:12]}-8{id[12:15]}-8{id[15]}00-{0:012}"


def task_id(vendor_id: str) -> str:
    """The id in such a UUID; raises `NotFound` for any other text."""
    found = TASK_ID.fullmatch(vendor_id)
    if found is None:
        raise NotFound(f"there is no task {vendor_id[:100]!r}")
    return "".join(found.groups())


def named_uuid(*names: str) -> str:
    """A UUID that stands for names, always the same."""
    return str(uuid.uuid5(NAMESPACE, "\n".join(names)))
