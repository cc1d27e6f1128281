"""Who is at the other end of a connection: a user of this machine (unix socket) or an address (TCP).

A peer is a machine's user or address, not necessarily a caller: a proxy is one peer for all whom it serves.
"""

from __future__ import annotations

import ipaddress
import pwd
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from qloom.errors import InputError

PEER = "uid"  # replaces the host in a client's address for the user at the other end of a unix socket

Client = tuple[str, int]  # (host, port) or (PEER, uid)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
