"""A real broker as a process, with users who have tokens, and raw sockets to attack it with."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from qloom.broker.auth.tokens import TokenFile
from tests.broker.processes import Service

PATIENCE_S = 60.0  # until a test gives up; nothing is measured with it
STRANGER = "127.0.0.2"  # another peer than 127.0.0.1, on the same machine


class Attacked(Service):
    """A broker on a port of 127.0.0.1 and on a unix socket; ann is in physics, bob in chemistry, root runs it."""

    def __init__(self, directory: Path, module: str = "tests.broker.service", **values) -> None:
        self.port = free_port()
        limits = {"requests_per_s": 1e6, "burst": 1e6, **values.pop("limits", {})}
        super().__init__(
            directory,
            module,
            **{
                "listen": [f"127.0.0.1:{self.port}", f"unix:{directory / 'b.sock'}"],
                "projects": {"physics": {"members": ["ann", "root"]}, "chemistry": {"members": ["bob"]}},
                "limits": limits,
                **values,
            },
        )
        tokens = TokenFile(directory / "tokens.json")
        self.tokens = {
            "ann": tokens.add("ann", ["physics"]),
            "bob": tokens.add("bob", ["chemistry"]),
            "root": tokens.add("root", ["physics"], "admin"),
        }

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def client(self, user: str | None = None, source: str = "127.0.0.1", **headers: str) -> httpx.Client:
        """A well-behaved client."""
        if user is not None:
            headers["Authorization"] = f"Bearer {self.tokens[user]}"
        transport = httpx.HTTPTransport(local_address=source)
        base = f"http://127.0.0.1:{self.port}"
        return httpx.Client(transport=transport, base_url=base, headers=headers, timeout=PATIENCE_S)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S, (source, 0))

    def connect_unix(self) -> socket.socket:
        """A bare connection to the unix socket, as whoever runs the test."""
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(PATIENCE_S)
        one.connect(str(self.socket))
        return one

    def head(self, user: str | None, line: str = "POST /v1/tasks", **headers: object) -> bytes:
        """A request line and headers, without the empty line that ends them."""
        given = {"Host": "b", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if user is not None:
            given["Authorization"] = f"Bearer {self.tokens[user]}"
        return f"{line} HTTP/1.1\r\n".encode() + b"".join(f"{key}: {given[key]}\r\n".encode() for key in given)

    def works_for(self, user: str, source: str = "127.0.0.1") -> None:
        """Check that a task of a user is accepted and done."""
        with self.client(user, source) as client:
            made = client.post("/v1/tasks", json=form(), params={"wait": 30})
            assert (made.status_code, made.json()["state"]) == (201, "done"), made.text

    def memory_bytes(self) -> int:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def connections(self) -> int:
        """Descriptors of the broker that are sockets."""
        assert self.process is not None
        count = 0
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                count += os.readlink(entry).startswith("socket:")
        return count


@contextlib.contextmanager
def attacked(directory: Path, **values) -> Iterator[Attacked]:
    """A broker that runs, and has to stop in good order afterwards."""
    service = Attacked(directory, **values)
    service.start()
    try:
        yield service
    except BaseException:
        service.kill()
        raise
    assert service.stop() == 0, service.log[-3000:]


def form(body: object = 1, **more: object) -> dict[str, object]:
    return {"kind": "test", "body": body, "seconds": 0.0, **more}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(connection: socket.socket) -> list[tuple[int, bytes]]:
    """All answers until the broker closes the connection; what is cut off is no answer."""
    data = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while part := connection.recv(65536):
            data += part
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")), len(data))
        found.append((int(lines[0].split()[1]), data[:length]))
        data = data[length:]
    return found


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """The next answer, of which the broker may keep the connection open."""
    file = connection.makefile("rb")
    status = int(file.readline().split()[1])
    length = 0
    while (line := file.readline().strip()) != b"":
        if line.lower().startswith(b"content-length:"):
            length = int(line[15:])
    return status, file.read(length)


def ask(connection: socket.socket, request: bytes, hang_up: bool = True) -> list[tuple[int, bytes]]:
    """Send some bytes and nothing more; all answers to them. A broker that has work to do sees that we hang up."""
    with connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        if hang_up:
            with contextlib.suppress(OSError):  # the broker may have closed it already
                connection.shutdown(socket.SHUT_WR)
        return answers(connection)


def error_of(body: bytes) -> str:
    return str(json.loads(body)["error"])


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it never was"
        time.sleep(0.02)
