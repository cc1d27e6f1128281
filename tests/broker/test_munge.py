"""Munge, for real where there is a munged to start: two user ids, replays, credentials for another request."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qloom.broker.auth.callers import Authenticator, RequestHead
from qloom.broker.auth.peers import LIBRARY, Munge, statement
from qloom.broker.problems import Unauthenticated
from qloom.errors import InputError

# A munged elsewhere than usual, e.g. from an unpacked package: QLOOM_TEST_MUNGE=/path/to/root
GIVEN = os.environ.get("QLOOM_TEST_MUNGE")
PLACE = Path(GIVEN or "/")
MUNGED = PLACE / "usr/sbin/munged"
LIBRARIES = [LIBRARY] if not GIVEN else [str(found) for found in PLACE.glob("usr/lib/*/libmunge.so.2")]
needs_munge = pytest.mark.skipif(
    os.geteuid() != 0 or not MUNGED.exists() or shutil.which("setpriv") is None,
    reason="MUNGE IS NOT TESTED: it needs munged, setpriv and root (apt-get install munge)",
)


@pytest.fixture
def munge(open_path):
    """A munged of our own, with a key of its own."""
    key, socket = open_path / "key", open_path / "munge.sock"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = {"key-file": key, "socket": socket, "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{name}={open_path / value}" for name, value in files.items()]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(Path(LIBRARIES[0]).parent)} if GIVEN else None
    command = [str(MUNGED), "--foreground", "--force", *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    deadline_s = time.monotonic() + 10
    while not socket.exists() and time.monotonic() < deadline_s and process.poll() is None:
        time.sleep(0.02)
    assert socket.exists(), (
        (open_path / "log").read_text() if (open_path / "log").exists() else "munged did not start"
    )
    yield Munge(LIBRARIES[0], str(socket)), socket
    process.terminate()
    process.wait(10)


def encode_as(uid: int, socket: Path, text: bytes) -> str:
    script = (
        "import sys; from qloom.broker.auth.peers import Munge; "
        "print(Munge(sys.argv[1], sys.argv[2]).encode(sys.argv[3].encode()))"
    )
    command = ["setpriv", f"--reuid={uid}", "--regid=65534", "--clear-groups", sys.executable, "-c", script]
    done = subprocess.run(
        [*command, LIBRARIES[0], str(socket), text.decode()], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ask(auth: Authenticator, credential: str, path: str = "/v1/tasks", body: bytes = b"{}", method: str = "POST"):
    async def identify():
        identity = await auth.identify(RequestHead(method, path, None, f"MUNGE {credential}"))
        identity.verify_body(body)
        return identity.caller

    return asyncio.run(identify())


@needs_munge
def test_two_users_are_told_apart_and_nothing_can_be_used_twice(munge):
    lib, socket = munge
    nobody = pwd.getpwuid(65534).pw_name
    daemon = pwd.getpwuid(1).pw_name
    auth = Authenticator(("munge",), members={"a": (nobody,), "b": (daemon,)}, admins=(daemon,), munge=lib)
    said = statement("POST", "/v1/tasks", b"{}")
    first, second = encode_as(65534, socket, said), encode_as(1, socket, said)
    caller = ask(auth, first)
    assert (caller.user, caller.projects, caller.admin) == (nobody, ("a",), False)
    caller = ask(auth, second)
    assert (caller.user, caller.projects, caller.admin) == (daemon, ("b",), True)
    with pytest.raises(Unauthenticated, match="was used before"):
        ask(auth, first)
    auth._munge_seen.clear()  # munged itself remembers too
    with pytest.raises(Unauthenticated, match="was used before"):
        ask(auth, first)


@needs_munge
@pytest.mark.parametrize(
    "other", [{"path": "/v1/sessions"}, {"body": b'{"shots": 9}'}, {"method": "DELETE"}, {"path": "/v1/tasks?wait=1"}]
)
def test_a_credential_is_worth_nothing_for_another_request(munge, other):
    lib, _socket = munge
    auth = Authenticator(("munge",), munge=lib)
    credential = lib.encode(statement("POST", "/v1/tasks", b"{}"))
    with pytest.raises(Unauthenticated, match="made for another request"):
        ask(auth, credential, **other)


@needs_munge
def test_a_forged_credential_is_refused(munge):
    lib, _socket = munge
    auth = Authenticator(("munge",), munge=lib)
    credential = lib.encode(statement("POST", "/v1/tasks", b"{}"))
    middle = len(credential) // 2
    forged = credential[:middle] + ("A" if credential[middle] != "A" else "B") + credential[middle + 1 :]
    for wrong in (forged, "MUNGE:nonsense:", "", "\xff"):
        with pytest.raises(Unauthenticated) as error:
            ask(auth, wrong)
        assert forged not in str(error.value)


@needs_munge
def test_the_client_speaks_munge(munge, tmp_path, monkeypatch):
    import httpx

    from qloom.broker.client.client import BrokerClient
    from qloom.broker.client.transport import Transport
    from qloom.broker.server.http import make_app
    from tests.broker.fakes import FakeDevice, Vendor, broker_on
    from tests.broker.web import form

    lib, socket = munge

    async def main():
        from qloom.broker.clock import ServiceClock

        clock = ServiceClock()
        broker = broker_on([FakeDevice(Vendor(clock))], tmp_path / "s.db", clock)
        await broker.start()
        app = make_app(broker, Authenticator(("munge",), admins=("root",), munge=lib))
        transport = Transport("http://b", munge=lib, http=httpx.ASGITransport(app))
        async with BrokerClient(transport=transport) as client:
            assert await client.run(form(3)) == {"echo": 3}
            assert (await client.drain("q"))["up"] is False
        monkeypatch.setenv("QLOOM_BROKER_MUNGE", str(socket))
        async with BrokerClient(transport=Transport("http://b", http=httpx.ASGITransport(app))) as client:
            assert (await client.drain("q", False))["up"] is True
        await broker.close()

    asyncio.run(main())


def test_without_munge_there_is_one_clear_line():
    with pytest.raises(InputError, match="munge is not installed here"):
        Munge("libmunge-that-is-not-there.so")
