"""A broker as a config describes it, behind HTTP, with a token for each of a few users."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx

from qloom.broker.auth.tokens import TokenFile
from qloom.broker.config import config_from
from qloom.broker.config_parts import LimitsPart
from qloom.broker.serve import authenticator, running
from qloom.broker.server.http import make_app
from qloom.devices.factory import make_device

ROOT = Path(__file__).resolve().parents[2]
PROJECTS: dict[str, dict[str, object]] = {"physics": {}, "chemistry": {}}  # without lists of members: tokens count
USERS = {"ann": ["physics"], "amy": ["physics", "chemistry"], "bob": ["chemistry"]}  # and boss, an administrator


@contextlib.asynccontextmanager
async def site(tmp_path, *, make=make_device, users=USERS, **values):
    """Yields the broker and a function from a user's name to an HTTP client."""
    given = {"store": str(tmp_path / "broker.db"), "projects": PROJECTS, "poll_s": 0.05, **values}
    config = config_from(given, "config")
    tokens = TokenFile(config.tokens_path)
    made = {user: tokens.add(user, projects) for user, projects in users.items()}
    made["boss"] = tokens.add("boss", [], "admin")
    async with running(config, make) as broker:
        app = make_app(broker, authenticator(config), LimitsPart(requests_per_s=1e6, burst=1e6))

        def client(user):
            headers = {"Authorization": f"Bearer {made[user]}"}
            return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://broker", headers=headers)

        yield broker, client


async def ended(client, task):
    """A task once it is over."""
    while (view := (await client.get(f"/v1/tasks/{task}/result?wait=30")).json())["ended_us"] is None:
        pass
    return view
