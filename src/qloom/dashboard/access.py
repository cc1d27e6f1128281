"""Who may look: a one-time link becomes a session of one browser, and nobody else's process is answered.

The key of a link is in the part of its address that browsers never send; the page posts it. Keys are files in a
private directory, named by their digest, so that another process of the same user can make one for a dashboard that
runs.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from qloom.private import PrivateDirectory

KEY_S = 600.0  # to open a link
SESSION_S = 12 * 3600.0
MOST_SESSIONS = 100
COOKIE = "qloom"
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


class LoginKeys:
    """Keys that are good for one login each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self) -> str:
        """A new key; those that have expired go."""
        with PrivateDirectory.open(self._directory, make=True) as place:
            for name in os.listdir(place.descriptor):
                with suppress(OSError):
                    if time.time() - os.stat(name, dir_fd=place.descriptor).st_mtime > KEY_S:
                        os.unlink(name, dir_fd=place.descriptor)
            key = secrets.token_urlsafe(32)
            place.write(_digest(key), b"")
        return key

    def use(self, key: str) -> bool:
        """Whether this is a key; it is none afterwards."""
        with PrivateDirectory.open(self._directory, make=True) as place:
            name = _digest(key)
            try:
                age_s = time.time() - os.stat(name, dir_fd=place.descriptor).st_mtime
                os.unlink(name, dir_fd=place.descriptor)  # only one of two who come at once succeeds
            except OSError:
                return False
        return age_s <= KEY_S


@dataclass
class BrowserSession:
    """One browser that has logged in. Its token is known to the page alone: what changes something has to send it."""

    expires_s: float
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def is_valid(self) -> bool:
        """Whether it has not expired."""
        return time.monotonic() < self.expires_s


class BrowserSessions:
    """The browsers that have logged in, in memory: they end with the dashboard."""

    def __init__(self) -> None:
        self._by_digest: dict[str, BrowserSession] = {}

    def begin(self) -> str:
        """A new session; returns the header that sets its cookie."""
        self._by_digest = {digest: one for digest, one in self._by_digest.items() if one.is_valid}
        while len(self._by_digest) >= MOST_SESSIONS:
            del self._by_digest[next(iter(self._by_digest))]
        secret = secrets.token_urlsafe(32)
        self._by_digest[_digest(secret)] = BrowserSession(time.monotonic() + SESSION_S)
        return f"{COOKIE}={secret}; Path=/; Max-Age={SESSION_S:.0f}; HttpOnly; SameSite=Strict"

    def find(self, cookies: str) -> BrowserSession | None:
        """The session of whoever sent these cookies."""
        try:
            jar = SimpleCookie(cookies)
        except CookieError:
            return None
        session = self._by_digest.get(_digest(jar[COOKIE].value)) if COOKIE in jar else None
        return session if session is not None and session.is_valid else None


def is_same_origin(headers: dict[bytes, bytes]) -> bool:
    """Whether a request that changes something comes from our own page."""
    host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin", b"").decode("latin-1")
    site = headers.get(b"sec-fetch-site", b"same-origin")
    return origin == f"http://{host}" and site == b"same-origin"


def is_local_name(host: str) -> bool:
    """Whether a Host header names this machine: a page elsewhere whose name was made to point here does not."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.lower() in LOCAL_NAMES


def has_token(session: BrowserSession, headers: dict[bytes, bytes]) -> bool:
    """Whether the page sent the session's token."""
    return hmac.compare_digest(headers.get(b"x-qloom-token", b""), session.token.encode())


def uid_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user at the other end of a connection on this machine, from the kernel's table; None if it is not there."""
    try:
        address = ipaddress.ip_address(client[0])
        wanted = [f"{_hex(host)}:{port:04X}" for host, port in (client, server)]
        table = Path("/proc/net/tcp" if address.version == 4 else "/proc/net/tcp6").read_text()
    except (OSError, ValueError):
        return None
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return int(fields[7])
    return None


def _hex(host: str) -> str:
    """An address as the kernel prints it: words of four bytes in the machine's order."""
    packed = ipaddress.ip_address(host).packed
    return b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4)).hex().upper()
