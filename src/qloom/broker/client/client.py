"""The Python client: `async with BrokerClient() as broker: await broker.run(qubo(...))`.

A client outlives restarts of the broker: submissions carry a key, so that they can be sent again, and waiting goes on
until there is a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from qloom.broker.auth.peers import Munge
from qloom.broker.client.transport import Transport
from qloom.broker.queue.task import FINAL
from qloom.errors import QuantumFailed
from qloom.model import Payload

POLL_S = 30.0

View = dict[str, Any]
START_S = 2.0  # how long a run waits for a broker before it begins


class BrokerClient:
    """A broker, from anywhere: by its unix socket, or over HTTP with a token or munge."""

    def __init__(
        self,
        address: str | None = None,
        token: str | None = None,
        *,
        project: str | None = None,
        munge: Munge | None = None,
        retry_s: float = 300.0,
        transport: Transport | None = None,
    ) -> None:
        self._transport = transport or Transport(address, token, munge=munge, retry_s=retry_s)
        self._project = project

    async def submit(self, payload: Payload | View, **options: Any) -> View:
        """Queue a payload; options are the fields of a task: device, session, name, max_wait_s, key, ..."""
        return await self._submit(payload, 0.0, options)

    async def _submit(self, payload: Payload | View, wait_s: float, options: dict[str, Any]) -> View:
        form = {"project": self._project, **_form(payload), **options}
        form["key"] = form.get("key") or uuid.uuid4().hex
        form["slurm_job"] = form.get("slurm_job") or slurm_job_around()
        given = {name: value for name, value in form.items() if value is not None or name == "body"}
        return dict(await self._transport.ask("POST", "/v1/tasks", given, wait_s))

    async def wait(
        self, task: str, *, poll_s: float = POLL_S, while_waiting: Callable[[View], None] | None = None
    ) -> View:
        """The end of a task, whatever happens to the broker meanwhile.

        `while_waiting` is called with how the task stands every `poll_s` seconds.
        """
        while True:
            view: View = await self._transport.ask("GET", f"/v1/tasks/{task}/result", wait_s=poll_s)
            if view["state"] in FINAL:
                return view
            if while_waiting is not None:
                while_waiting(view)

    async def wait_begun(self, task: str) -> View:
        """Wait until a task executes or has ended; returns its state."""
        while True:
            view: View = await self._transport.ask("GET", f"/v1/tasks/{task}", wait_s=POLL_S)
            if view["state"] in ("executing", *FINAL):
                return view

    async def result(self, task: str) -> Any:
        """The result of a task, once it is done; raises `QuantumFailed` if it is not to be."""
        return (await self.wait_done(task))["result"]

    async def wait_done(self, task: str) -> View:
        """Wait for a task and return it with its result; raises `QuantumFailed` if it failed or was cancelled."""
        view = await self.wait(task)
        _result(view)
        return view

    async def run(self, payload: Payload | View, **options: Any) -> Any:
        """Submit a payload and wait for its result."""
        view = await self._submit(payload, POLL_S, options)
        return _result(view if view["state"] in FINAL else await self.wait(view["id"]))

    async def status(self, task: str) -> View:
        """How a task stands."""
        return dict(await self._transport.ask("GET", f"/v1/tasks/{task}"))

    async def cancel(self, task: str) -> View:
        """Cancel a task."""
        return dict(await self._transport.ask("DELETE", f"/v1/tasks/{task}"))

    async def open_session(
        self, device: str, hold: str = "share", job: str | None = None, *, shared: bool = False
    ) -> View:
        """Hold a device or a share of it: waits until it is granted."""
        view = await self.ask_session(device, hold, job, shared=shared)
        return view if view["state"] == "open" else await self.wait_open(view["id"])

    async def ask_session(
        self,
        device: str,
        hold: str = "share",
        job: str | None = None,
        key: str | None = None,
        slurm_job: str | None = None,
        *,
        shared: bool = False,
    ) -> View:
        """Ask for a device or a share of it; it is open at once, or later.

        `slurm_job` is the Slurm job that holds the share; if it is not given, the one around this process. Only its
        owner may use a session, unless it is `shared` with the other members of the project.
        """
        key = key or uuid.uuid4().hex
        form: View = {"device": device, "hold": hold, "project": self._project, "job": job, "key": key}
        form |= {"slurm_job": slurm_job or slurm_job_around(), "shared": shared or None}
        form = {name: value for name, value in form.items() if value is not None}
        return dict(await self._transport.ask("POST", "/v1/sessions", form))

    async def wait_open(self, session: str) -> View:
        """A session once it is open or closed."""
        while True:
            view: View = await self._transport.ask("GET", f"/v1/sessions/{session}", wait_s=POLL_S)
            if view["state"] != "waiting":
                return view

    async def keep_session(self, session: str) -> View:
        """Confirm to the broker that a session is still wanted."""
        return dict(await self._transport.ask("GET", f"/v1/sessions/{session}"))

    async def close_session(self, session: str) -> View:
        """Give it back; what is left of it is cancelled."""
        return dict(await self._transport.ask("DELETE", f"/v1/sessions/{session}"))

    @contextlib.asynccontextmanager
    async def session(self, device: str, hold: str = "share", *, shared: bool = False) -> AsyncIterator[str]:
        """`async with broker.session("q") as session: await broker.run(payload, session=session)`."""
        view = await self.open_session(device, hold, shared=shared)
        try:
            yield view["id"]
        finally:
            await self.close_session(view["id"])

    async def devices(self) -> list[View]:
        """All devices."""
        return list(await self._transport.ask("GET", "/v1/devices"))

    async def device(self, name: str) -> View:
        """One device."""
        return dict(await self._transport.ask("GET", f"/v1/devices/{name}"))

    async def queue(self) -> View:
        """Counts for each device, and the places of your own tasks."""
        return dict(await self._transport.ask("GET", "/v1/queue"))

    async def drain(self, device: str, drained: bool = True) -> View:
        """Start nothing new on a device, or start again (administrators)."""
        return dict(await self._transport.ask("POST", f"/v1/devices/{device}/{'drain' if drained else 'resume'}"))

    async def set_shares(self, device: str, shares: int) -> View:
        """Offer another number of vQPUs (administrators)."""
        return dict(await self._transport.ask("PUT", f"/v1/devices/{device}/shares", {"shares": shares}))

    async def tasks(self, device: str | None = None) -> list[View]:
        """Tasks of your projects that are not over; all of them for administrators."""
        return list(await self._transport.ask("GET", "/v1/tasks", params={"device": device} if device else None))

    async def sessions(self, device: str | None = None) -> list[View]:
        """Your sessions, and shared ones, that are not closed; all of them for administrators."""
        return list(await self._transport.ask("GET", "/v1/sessions", params={"device": device} if device else None))

    async def evict(self, id: str, reason: str = "") -> View:
        """Close a session, or cancel a task, of anybody (administrators)."""
        return dict(await self._transport.ask("POST", f"/v1/evict/{id}", {"reason": reason}))

    async def hold(self, task: str) -> View:
        """Keep a queued task from being started (administrators)."""
        return dict(await self._transport.ask("POST", f"/v1/tasks/{task}/hold"))

    async def release(self, task: str) -> View:
        """Let a task run that was held (administrators)."""
        return dict(await self._transport.ask("POST", f"/v1/tasks/{task}/release"))

    async def requeue(self, task: str) -> View:
        """Take a task back from its device and queue it again (administrators)."""
        return dict(await self._transport.ask("POST", f"/v1/tasks/{task}/requeue"))

    async def reconcile(self, device: str | None = None) -> list[View]:
        """Where the vendors' accounting and ours differ (administrators)."""
        params = {"device": device} if device else None
        return list(await self._transport.ask("GET", "/v1/reconcile", params=params))

    async def close(self) -> None:
        """Let go of the connection."""
        await self._transport.close()

    async def __aenter__(self) -> BrokerClient:
        """Nothing is sent before the first request."""
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()


def slurm_job_around() -> str | None:
    """The number of the Slurm job that this process runs in."""
    number = os.environ.get("SLURM_JOB_ID", "")
    return number if number.isdigit() else None


def executed_s(view: View) -> float | None:
    """Seconds that a task was on its device, once it is over; None if that is not known."""
    began_us, ended_us = view.get("executing_us"), view.get("ended_us")
    return None if began_us is None or ended_us is None else (ended_us - began_us) / 1e6


def _result(view: View) -> Any:
    if view["state"] != "done":
        why = f": {view['reason']}" if view["reason"] else ""
        raise QuantumFailed(f"quantum task {view['id']} on QPU {view['device']} is {view['state']}{why}")
    return view["result"]


def _form(payload: Payload | View) -> View:
    if not isinstance(payload, Payload):
        return payload
    seed = {"seed": payload.options["seed"]} if "seed" in payload.options else {}
    return {
        "kind": payload.kind,
        "body": payload.body,
        "shots": payload.shots,
        "seconds": payload.seconds,
        "device": payload.device,
        "name": payload.name,
        "options": {**payload.device_options, **seed},
    }


def devices_at(address: str) -> list[View]:
    """The devices of a broker; raises if none answers. Not to be called from a coroutine."""

    async def ask() -> list[View]:
        async with BrokerClient(address, retry_s=START_S) as client:
            return await client.devices()

    return asyncio.run(ask())
