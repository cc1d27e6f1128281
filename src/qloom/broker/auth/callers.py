"""Who asks: by a bearer token, a munge credential, the user at the other end of a unix socket, or a trusted proxy.

All of it is decided from the header of a request: no byte of a stranger's body is read. A munge credential covers the
body too, which is compared once it is there. Whatever is wrong with a credential, the answer is the same 401, and no
credential is ever part of a message.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import pwd
import re
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from qloom.broker.auth.peers import PEER, Client, Munge, Proxies, statement
from qloom.broker.auth.tokens import TokenFile
from qloom.broker.problems import Unauthenticated
from qloom.broker.requests import Caller

METHODS = ("token", "munge", "peer", "none")
MUNGE_LIFE_S = 600.0  # munged forgets a credential after five minutes, and so may we after ten
Members = Mapping[str, Sequence[str] | None]  # None: there is no list, so that tokens alone say who is in a project
USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True)
class RequestHead:
    """What the header of a request says of its sender."""

    method: str
    path: str  # as it was sent, with its query
    client: Client | None
    authorization: str | None = None
    named_user: str | None = None  # by a proxy, or by somebody who would like to be one
    forwarded: bool = False  # a proxy has passed it on


@dataclass(frozen=True)
class Identity:
    """A caller, and what their credential was made for."""

    caller: Caller
    head: RequestHead
    stated: bytes | None = None  # by a munge credential

    def verify_body(self, body: bytes) -> None:
        """Refuse a body that the credential was not made for."""
        if self.stated is not None and self.stated != statement(self.head.method, self.head.path, body):
            raise _for_another_request()


@dataclass
class Authenticator:
    """Finds out who sent a request."""

    methods: Sequence[str] = ("token", "peer")
    tokens: TokenFile | None = None
    members: Members = field(default_factory=lambda: {"default": ("*",)})  # of each project
    admins: Sequence[str] = ()
    munge: Munge | None = None
    proxies: Proxies = field(default_factory=Proxies)
    _munge_seen: OrderedDict[bytes, float] = field(default_factory=OrderedDict)

    async def identify(self, head: RequestHead) -> Identity:
        """Who sent the request with this header; raises `Unauthenticated`."""
        proxied = self.proxies.include(head.client)
        if head.named_user is not None:
            return Identity(self._named(head, proxied), head)
        scheme, _, credential = (head.authorization or "").strip().partition(" ")
        if scheme.lower() == "bearer" and "token" in self.methods and self.tokens is not None:
            if (found := self.tokens.caller(credential.strip())) is None:
                raise Unauthenticated("this token is not valid", hint="ask for one: qloom broker token")
            return Identity(self._while_member(found), head)
        if scheme.lower() == "munge" and self.munge is not None:
            return await self._by_munge(self.munge, credential.strip(), head)
        if head.authorization is not None:  # it was meant to say something: nobody else is taken instead
            raise Unauthenticated("this kind of credential is not taken here", hint=f"use {', '.join(self.methods)}")
        if head.client is not None and head.client[0] == PEER and "peer" in self.methods:
            if proxied or head.forwarded:  # whoever is there speaks for somebody else
                raise Unauthenticated(
                    "a proxy has to say for whom it asks",
                    hint="it sends the user's credential, or is listed in [auth] proxies and names the user",
                )
            return Identity(self.of_uid(head.client[1]), head)
        if "none" in self.methods:
            return Identity(Caller("anonymous", self._projects_of("anonymous")), head)
        raise Unauthenticated(
            "no credential", hint="send a token or a munge credential, or use the broker's unix socket"
        )

    def _named(self, head: RequestHead, proxied: bool) -> Caller:
        user = head.named_user or ""
        if not proxied:
            raise Unauthenticated("only a trusted proxy may name a user", hint="[auth] proxies lists them")
        if head.authorization is not None or not USER_NAME.fullmatch(user):
            raise Unauthenticated(
                "a proxy names one user, without another credential", hint="remove the Authorization header there"
            )
        return Caller(user, self._projects_of(user), user in self.admins, _uid_of(user))

    async def _by_munge(self, munge: Munge, credential: str, head: RequestHead) -> Identity:
        mark = hashlib.sha256(credential.encode()).digest()
        now_s = time.monotonic()
        while self._munge_seen and next(iter(self._munge_seen.values())) < now_s - MUNGE_LIFE_S:
            self._munge_seen.popitem(last=False)
        if mark in self._munge_seen:
            raise Unauthenticated("the munge credential was used before", hint="make a new one for each request")
        self._munge_seen[mark] = now_s
        try:
            uid, stated = await asyncio.to_thread(munge.decode, credential)
        except BaseException:
            self._munge_seen.pop(mark, None)  # forgeries are refused again; keeping them would fill the memory
            raise
        if stated.rpartition(b"\n")[0] != statement(head.method, head.path, b"").rpartition(b"\n")[0]:
            raise _for_another_request()
        return Identity(self.of_uid(uid), head, stated)

    def of_uid(self, uid: int) -> Caller:
        """The caller with a user id of this machine. Many things run as root: it has to be named to be one of us."""
        user = _name_of(uid)
        admin = user in self.admins or uid == os.geteuid() != 0
        return Caller(user, self._projects_of(user), admin, uid)

    def replace_members(self, members: Members, admins: Sequence[str]) -> None:
        """Count these members and administrators from now on, also for open streams and for requests that wait."""
        self.members, self.admins = members, admins

    def current(self, before: Caller) -> Caller | None:
        """What a caller may by now; None if their token was revoked or has expired."""
        if before.token is not None:
            found = self.tokens.current(before.token) if self.tokens is not None else None
            return None if found is None else self._while_member(found)
        ours = before.admin and before.uid == os.geteuid()
        return replace(before, projects=self._projects_of(before.user), admin=ours or before.user in self.admins)

    def _while_member(self, caller: Caller) -> Caller:
        """A token counts for a project only as long as its user is in that project's list, where there is one."""
        own = dict.fromkeys(self._projects_of(caller.user))
        held = (name for name in caller.projects if name in own or self.members.get(name, ()) is None)
        return replace(caller, projects=tuple(held))

    def _projects_of(self, user: str) -> tuple[str, ...]:
        lists = ((name, members) for name, members in self.members.items() if members is not None)
        return tuple(name for name, members in lists if user in members or "*" in members)


def _for_another_request() -> Unauthenticated:
    return Unauthenticated("the munge credential was made for another request")


@functools.lru_cache(maxsize=4096)
def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


@functools.lru_cache(maxsize=4096)
def _uid_of(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
