"""A broker behind HTTP, in this process."""

from __future__ import annotations

import contextlib

import httpx

from qloom.broker.auth.callers import Authenticator
from qloom.broker.auth.tokens import TokenFile
from qloom.broker.clock import ServiceClock
from qloom.broker.config_parts import LimitsPart
from qloom.broker.server.http import make_app
from tests.broker.fakes import FakeDevice, Vendor, broker_on


@contextlib.asynccontextmanager
async def service(tmp_path, *, start=True, specs=None, projects=(), device=None, **limits):
    """Yields (broker, client of a token); tokens: ann in physics, bob in chemistry, root."""
    clock = ServiceClock()
    broker = broker_on([device or FakeDevice(Vendor(clock))], tmp_path / "s.db", clock, specs, projects=projects)
    await broker.start()
    tokens = TokenFile(tmp_path / "tokens.json")
    made = {
        "ann": tokens.add("ann", ["physics"]),
        "bob": tokens.add("bob", ["chemistry"]),
        "root": tokens.add("root", ["site"], "admin"),
    }
    members = dict.fromkeys(("physics", "chemistry", "site"))  # no lists: tokens say who is in a project
    app = make_app(broker, Authenticator(("token",), tokens, members), LimitsPart(**limits))

    def client(user=None, **headers):
        if user is not None:
            headers["Authorization"] = f"Bearer {made.get(user, user)}"
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://broker", headers=headers)

    try:
        yield broker, client, app
    finally:
        await broker.close()


def form(body=1, **more):
    return {"kind": "test", "body": body, "seconds": 0.0, **more}
