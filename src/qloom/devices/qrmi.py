"""Any vendor's machine through QRMI. Usually run in a process of its own, see `process.py`.

QRMI finds nothing by our tokens, so a log of them is kept (`tokens.py`). Its calls block, and one resource takes
one call at a time: they are made in a thread, one after the other, each with a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from qloom.device import Description, Outage, Status
from qloom.devices.check import check_payload, seconds_of, set_up_key_of
from qloom.devices.resource import calibration_in, open_resource, payload_of, qrmi_module, read_secrets, state_of
from qloom.devices.tokens import TokenLog
from qloom.errors import CannotTell, QloomError, QuantumFailed, UnknownTask, Unreachable
from qloom.model import Payload

ORDER = ("preparing", "vendor_queued", "executing", "done", "failed", "cancelled")
FINAL = ORDER[3:]
CALIBRATION_S = 300.0  # how old the name of a calibration may be: to ask for it can be a large answer
NOT_TAKEN = (
    "InvalidInputError",
    "UnsupportedPayloadError",
    "AuthenticationFailedError",
    "ConfigError",
    "EnvVarNotSetError",
    "ResourceNotFoundError",
)  # fmt: skip  QRMI's word that no task was made


class QrmiDevice:
    """A vendor's device, behind the broker's port."""

    def __init__(
        self,
        description: Description,
        resource: str,
        type_name: str,
        tokens: Path,
        *,
        secrets: Path | None = None,
        module: str = "qrmi",
        acquire: bool = True,
        poll_s: float = 2.0,
        call_s: float = 60.0,
        patience_s: float = 300.0,
    ) -> None:
        self.description = description
        self.outages_s: tuple[Outage, ...] = ()  # QRMI announces none
        self._resource_id = resource
        self._type_name = type_name
        self._tokens_path = tokens
        self._secrets_path = secrets
        self._module_name = module
        self._acquire = acquire
        self._poll_s = poll_s
        self._call_s = call_s
        self._patience_s = patience_s
        self._hidden: list[str] = []  # secrets' values: never in an error
        self._opened: tuple[Any, Any, TokenLog] | None = None
        self._held: str | None = None
        self._reported: dict[str, str] = {}  # the state that `wait` last returned, by task
        self._calibrated: dict[str, str | None] = {}  # tasks that execute -> the calibration that they began under
        self._calibration: tuple[float, str | None] | None = None  # when it was asked for, and the answer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"qrmi-{description.name}")
        self._one_at_a_time = asyncio.Lock()

    def check(self, payload: Payload) -> None:
        """See `Device.check`."""
        check_payload(self.description, payload)

    def seconds(self, payload: Payload) -> float:
        """See `Device.seconds`."""
        return seconds_of(self.description, payload)

    def set_up_key(self, payload: Payload) -> str | None:
        """See `Device.set_up_key`."""
        return set_up_key_of(payload)

    async def start(self, token: str, payload: Payload) -> str:
        """See `Device.start`. What goes wrong after the hand-over began is `CannotTell`: it may be paid already."""
        self.check(payload)
        module, resource, log = await self._open()
        known = log.find(token)
        if known is not None:
            return known
        if self._acquire and self._held is None:
            self._held = str(await self._call(resource.acquire))
            os.environ[f"{self._resource_id}_QRMI_JOB_ACQUISITION_TOKEN"] = self._held  # where QRMI looks for it
        given = payload_of(module, payload)
        log.starting(token)

        def task_start() -> str:
            id = str(resource.task_start(given))
            log.started(token, id)  # here, in the thread: an answer that comes too late for us is noted all the same
            return id

        try:
            return str(await self._call(task_start))
        except Unreachable as error:
            if getattr(error.__cause__, "kind", "") in NOT_TAKEN:
                log.not_started(token)
                raise QuantumFailed(f"the vendor did not take the task: {error.message}") from None
            raise CannotTell(f"whether the vendor took the task is unknown: {error.message}") from None

    async def find(self, token: str) -> str | None:
        """See `Device.find`: what the log knows."""
        return (await self._open())[2].find(token)

    async def wait(self, id: str) -> Status:
        """See `Device.wait`. A vendor that does not answer for a while is asked again; then `Unreachable`."""
        _, resource, log = await self._open()
        silent_since: float | None = None
        loop = asyncio.get_running_loop()
        pause_s = min(0.05, self._poll_s)
        while True:
            try:
                state = state_of(await self._call(resource.task_status, id))
                silent_since = None
            except Unreachable:
                silent_since = loop.time() if silent_since is None else silent_since
                if loop.time() - silent_since > self._patience_s:
                    raise
                state = self._reported.get(id, "vendor_queued")
            before = self._reported.get(id)
            if before is None or ORDER.index(state) > ORDER.index(before) or state in FINAL:  # never back
                self._reported[id] = state
                return await self._status(id, state, log)
            await asyncio.sleep(pause_s)
            pause_s = min(1.5 * pause_s, self._poll_s)

    async def _status(self, id: str, state: str, log: TokenLog) -> Status:
        if state == "executing":
            self._calibrated[id] = await self.calibration()
        if state not in FINAL:
            return Status(state)
        log.ended(id)
        if state != "done":
            return Status(state, error="the vendor says that it failed" if state == "failed" else "")
        if id not in self._calibrated:
            self._calibrated[id] = await self.calibration()
        return Status(state, calibration=self._calibrated[id])

    async def result(self, id: str) -> Any:
        """See `Device.result`. A result that is late is asked for again."""
        _, resource, _ = await self._open()
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while True:
            try:
                text = (await self._call(resource.task_result, id)).value
                return {"form": "vendor", "type": self._type_name, "value": _json_if_it_is(text)}
            except Unreachable:
                if loop.time() > until:
                    raise
            await asyncio.sleep(self._poll_s)

    async def stop(self, id: str) -> None:
        """See `Device.stop`."""
        _, resource, log = await self._open()
        if id not in log.over:
            await self._call(resource.task_stop, id)

    async def state(self) -> str:
        """See `Device.state`."""
        try:
            _, resource, _ = await self._open()
            if hasattr(resource, "status"):
                with contextlib.suppress(_Unsupported):
                    found = await self._call(resource.status)
                    word = str(found.status).rpartition(".")[2]
                    return {"Offline": "offline", "Paused": "maintenance"}.get(word, "busy" if found.busy else "idle")
            return "idle" if await self._call(resource.is_accessible) else "offline"
        except Unreachable:
            return "error"

    async def calibration(self) -> str | None:
        """See `Device.calibration`: what the vendor's metadata or target says, at most some minutes ago."""
        now_s = asyncio.get_running_loop().time()
        if self._calibration is None or now_s - self._calibration[0] > CALIBRATION_S:
            self._calibration = now_s, await self._ask_calibration()
        return self._calibration[1]

    async def _ask_calibration(self) -> str | None:
        for said in (self.metadata, self.target):
            with contextlib.suppress(Unreachable, AttributeError, TypeError, ValueError):  # no vendor has to
                if (found := calibration_in(await said())) is not None:
                    return found
        return None

    async def tasks(self) -> dict[str, float]:
        """See `Device.tasks`: QRMI does not report what is billed."""
        return {}

    async def target(self) -> Any:
        """What the vendor says of its device, for compilers."""
        _, resource, _ = await self._open()
        return _json_if_it_is((await self._call(resource.target)).value)

    async def metadata(self) -> dict[str, str]:
        """What else the vendor says."""
        _, resource, _ = await self._open()
        return dict(await self._call(resource.metadata))

    async def close(self) -> None:
        """See `Device.close`. The vendor's session is given back only if no task needs it any more."""
        if self._opened is not None:
            _, resource, log = self._opened
            if self._held is not None and all(id in log.over for id in log.known()):
                with contextlib.suppress(QuantumFailed):
                    await self._call(resource.release, self._held)
            log.close()
            self._opened = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _open(self) -> tuple[Any, Any, TokenLog]:
        if self._opened is None:
            module = qrmi_module(self._module_name)
            secrets = read_secrets(self._secrets_path) if self._secrets_path is not None else {}
            self._hidden = sorted((value for value in secrets.values() if len(value) > 3), key=len, reverse=True)
            resource = await self._call(open_resource, module, self._resource_id, self._type_name, secrets)
            if self._opened is None:
                self._opened = module, resource, TokenLog(self._tokens_path)
        return self._opened

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """One blocking call of QRMI; whatever goes wrong is `Unreachable`, without secrets."""
        name = getattr(function, "__name__", "call")
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(self._call_s):
                    return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
            except TimeoutError:
                raise Unreachable(f"{self.description.name}: {name} took longer than {self._call_s:g} s") from None
            except (QloomError, asyncio.CancelledError):
                raise
            except Exception as error:
                kind = type(error).__name__
                text = str(error).splitlines()[0][:200] if str(error) else ""
                for secret in self._hidden:
                    text = text.replace(secret, "***")
                message = f"{self.description.name}: {name}: {kind}: {text}"
                if kind == "TaskNotFoundError":
                    raise UnknownTask(message) from None
                if kind == "UnsupportedFunctionError":
                    raise _Unsupported(message) from None
                raise Unreachable(message) from _Cause(kind)


class _Unsupported(Unreachable):
    """This vendor has no such call."""


class _Cause(Exception):
    """The kind of the vendor's error, without its text."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def _json_if_it_is(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text
