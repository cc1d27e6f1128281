"""Who asks: by a bearer token, a munge credential, or the user at the other end of a unix socket.

Whatever is wrong with a credential, the answer is the same 401, and no credential is ever part of a message.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import pwd
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.broker.munge import Munge, statement
from qloom.broker.problems import Unauthenticated
from qloom.broker.records import Caller
from qloom.broker.tokens import Tokens

METHODS = ("token", "munge", "peer", "none")
MUNGE_LIFE_S = 600.0  # munged forgets a credential after five minutes, and so may we after ten
PEER = "uid"  # stands in the place of a client's address for the user at the other end of a unix socket


@dataclass
class Authenticator:
    """Tells who sent a request."""

    methods: Sequence[str] = ("token", "peer")
    tokens: Tokens | None = None
    members: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"default": ("*",)})  # of each project
    admins: Sequence[str] = ()
    munge: Munge | None = None
    _munge_seen: OrderedDict[bytes, float] = field(default_factory=OrderedDict)

    async def caller(self, scope: Mapping[str, Any], authorization: str | None, path: str, body: bytes) -> Caller:
        """Who sent this request; raises `Unauthenticated`."""
        scheme, _, credential = (authorization or "").strip().partition(" ")
        if scheme.lower() == "bearer" and "token" in self.methods and self.tokens is not None:
            if (found := self.tokens.caller(credential.strip())) is None:
                raise Unauthenticated("this token is not valid", hint="ask for one: qloom broker token")
            return found
        if scheme.lower() == "munge" and self.munge is not None:
            return await self._by_munge(credential.strip(), statement(str(scope["method"]), path, body))
        if authorization:  # it was meant to say something: nobody else is taken instead
            raise Unauthenticated("this kind of credential is not taken here", hint=f"use {', '.join(self.methods)}")
        client = scope.get("client")
        if client is not None and client[0] == PEER and "peer" in self.methods:
            return self.of_uid(int(client[1]))
        if "none" in self.methods:
            return Caller("anonymous", self._projects_of("anonymous"))
        raise Unauthenticated(
            "no credential", hint="send a token or a munge credential, or use the broker's unix socket"
        )

    async def _by_munge(self, credential: str, expected: bytes) -> Caller:
        assert self.munge is not None  # noqa: S101
        mark = hashlib.sha256(credential.encode()).digest()
        now_s = time.monotonic()
        while self._munge_seen and next(iter(self._munge_seen.values())) < now_s - MUNGE_LIFE_S:
            self._munge_seen.popitem(last=False)
        if mark in self._munge_seen:
            raise Unauthenticated("the munge credential was used before", hint="make a new one for each request")
        self._munge_seen[mark] = now_s
        uid, said = await asyncio.to_thread(self.munge.decode, credential)
        if said != expected:
            raise Unauthenticated("the munge credential was made for another request")
        return self.of_uid(uid)

    def of_uid(self, uid: int) -> Caller:
        """The caller with a user id of this machine."""
        user = _name_of(uid)
        admin = user in self.admins or uid in (0, os.geteuid())
        return Caller(user, self._projects_of(user), admin, uid)

    def _projects_of(self, user: str) -> tuple[str, ...]:
        return tuple(name for name, members in self.members.items() if user in members or "*" in members)


@functools.lru_cache(maxsize=4096)
def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"
