"""Who sent this: a user of this machine (unix socket), an address (TCP), or whom munge vouches for.

A peer is a machine's user or address, not necessarily a caller: a proxy is one peer for all whom it serves.

Munge serves sites whose machines share a key. A credential is made for one request: it holds the method, the path and
the digest of the body, so that it is worth nothing for another one, and munged refuses one that it has decoded
before.
"""

from __future__ import annotations

import ctypes
import hashlib
import ipaddress
import pwd
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qloom.broker.problems import Unauthenticated, Unavailable
from qloom.errors import InputError

PEER = "uid"  # replaces the host in a client's address for the user at the other end of a unix socket

Client = tuple[str, int]  # (host, port) or (PEER, uid)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LIBRARY = "libmunge.so.2"
OPT_SOCKET = 8  # MUNGE_OPT_SOCKET of munge.h
NO_DAEMON, TIMED_OUT, EXPIRED, REPLAYED = 6, 7, 15, 17


def client_of(connection: socket.socket) -> Client | None:
    """Report the peer's uid as the client address of a unix socket, and its host and port otherwise."""
    if connection.family == socket.AF_UNIX:
        size = struct.calcsize("3i")
        _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return PEER, uid
    try:
        host, port = connection.getpeername()[:2]
    except OSError:  # it has gone already
        return None
    return str(host), int(port)


def peer_of(client: Client | None) -> str:
    """The name under which a peer is counted; the addresses of an IPv6 subnet are one peer, since they are free."""
    if client is None:
        return "unknown"
    if client[0] == PEER:
        return f"uid {client[1]}"
    address = _address(client[0])
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address or client[0])


@dataclass(frozen=True)
class Proxies:
    """The peers that are trusted to name the user whom they serve."""

    uids: tuple[int, ...] = ()
    networks: tuple[Network, ...] = ()

    def include(self, client: Client | None) -> bool:
        """Whether a client is one of them."""
        if client is None:
            return False
        if client[0] == PEER:
            return client[1] in self.uids
        address = _address(client[0])
        return address is not None and any(address in network for network in self.networks)


def proxies_named(names: Sequence[str]) -> Proxies:
    """Proxies as a config names them: users, user ids, addresses or networks."""
    uids: list[int] = []
    networks: list[Network] = []
    for name in names:
        if name.isascii() and name.isdigit():
            uids.append(int(name))
            continue
        try:
            networks.append(ipaddress.ip_network(name))
            continue
        except ValueError:
            pass
        try:
            uids.append(pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise InputError(
                f"auth.proxies: {name!r} is neither a user of this machine nor an address",
                hint="name a user, a user id, an address or a network such as 10.0.0.0/28",
            ) from None
    return Proxies(tuple(uids), tuple(networks))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def statement(method: str, path: str, body: bytes) -> bytes:
    """What a credential says: this request and no other."""
    return f"{method.upper()}\n{path}\n{hashlib.sha256(body).hexdigest()}".encode()


class Munge:
    """libmunge, called directly; `socket` is that of a munged elsewhere than usual."""

    def __init__(self, library: str | None = None, socket: str | None = None) -> None:
        try:
            self._lib: Any = ctypes.CDLL(library or LIBRARY)
        except OSError:
            raise InputError("munge is not installed here", hint="install libmunge2, or use tokens") from None
        self._lib.munge_ctx_create.restype = ctypes.c_void_p
        self._lib.munge_ctx_strerror.restype = ctypes.c_char_p
        self._lib.munge_strerror.restype = ctypes.c_char_p
        self._socket = socket.encode() if socket else None

    def encode(self, text: bytes) -> str:
        """A credential for a text, as whoever runs this process."""
        context, credential = self._context(), ctypes.c_char_p()
        try:
            error = self._lib.munge_encode(ctypes.byref(credential), context, text, len(text))
            if error != 0 or credential.value is None:
                raise InputError(f"munge: {self._lib.munge_strerror(error).decode()}", hint="is munged running?")
            return credential.value.decode()
        finally:
            _free(credential)
            self._lib.munge_ctx_destroy(context)

    def decode(self, credential: str) -> tuple[int, bytes]:
        """The user id of whoever made a credential, and its text."""
        context = self._context()
        text, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        try:
            error = self._lib.munge_decode(
                credential.encode("ascii", "replace"),
                context,
                *(ctypes.byref(out) for out in (text, length, uid, gid)),
            )
            found = ctypes.string_at(text.value, length.value) if text.value else b""
            if error in (NO_DAEMON, TIMED_OUT):
                raise Unavailable("munged does not answer on the broker's machine", hint="is munged running there?")
            if error != 0:
                what = {REPLAYED: "was used before", EXPIRED: "is too old"}.get(error, "is not valid")
                raise Unauthenticated(f"the munge credential {what}", hint="make a new one for each request")
            return uid.value, found
        finally:
            _free(text)
            self._lib.munge_ctx_destroy(context)

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(self._lib.munge_ctx_create())
        if self._socket is not None:
            self._lib.munge_ctx_set(context, OPT_SOCKET, ctypes.c_char_p(self._socket))
        return context


def _free(pointer: Any) -> None:
    if pointer:
        ctypes.CDLL(None).free(pointer)
