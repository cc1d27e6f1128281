"""Forged, borrowed and replayed credentials, and what a right one does not open: other projects, other users."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.parse

import httpx
import pytest

from qloom.broker.auth.peers import statement
from tests.broker.test_munge import encode_as, munge, needs_munge  # noqa: F401
from tests.security.server import PATIENCE_S, Attacked, ask, attacked, error_of, form

NOBODY, DAEMON = 65534, 1


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    limits = {"failures_per_s": 1e6, "failures_burst": 1e6}
    with attacked(tmp_path_factory.mktemp("credentials"), limits=limits) as service:
        yield service


def forgeries(token: str) -> list[bytes]:
    """Values of the header Authorization that are none of ours, made from a token that is."""
    secret = token.removeprefix("qloom_")
    raw = token.encode()
    tokens = [
        *(token[:length] for length in range(0, len(token), 3)),  # the beginnings
        *(token[-length:] for length in range(1, len(token), 3)),  # the ends
        *(token[:at] + ("0" if token[at] != "0" else "1") + token[at + 1 :] for at in range(len(token))),
        *(token[:at] + token[at + 1 :] for at in range(0, len(token), 2)),
        *(token[:at] + " " + token[at:] for at in range(1, len(token), 7)),
        *(token + more for more in ("0", "a", ".", "=", "%20", "%00", ",", ";", token, "\t0", "/../" + token)),
        *(less + token for less in ("0", "x", "%20", '"', "token=", "user:", "ann:")),
        token.upper(),
        token.swapcase(),
        token.title(),
        token[::-1],
        secret,
        f"QLOOM_{secret}",
        f"qloom-{secret}",
        f"qloom_{secret.upper()}",
        f'"{token}"',
        f"'{token}'",
        f"<{token}>",
        f"{{{token}}}",
        urllib.parse.quote(token, safe="").replace("_", "%5F"),
        base64.b64encode(raw).decode(),
        token.encode().hex(),
        "qloom_" + "0" * 64,
        "qloom_" + "f" * 64,
        "qloom_",
        "_",
        "*",
        "null",
        "undefined",
        "true",
        "0",
        "-1",
        "[]",
        "{}",
        "' OR '1'='1",
        "../tokens.json",
        "a" * 10_000,
        "~",
    ]
    values = [b"Bearer " + one.encode("latin-1") for one in tokens if one.strip() != token]
    basic = base64.b64encode(b"ann:" + raw)
    values += [
        *(scheme + b" " + raw for scheme in (b"Basic", b"Token", b"Digest", b"Negotiate", b"ApiKey", b"OAuth", b"x")),
        *(scheme + b" " + raw for scheme in (b"Bearer:", b"Bearer,", b"Bearer=", b"Bearerx", b"xBearer", b"MUNGE")),
        b"Basic " + basic,
        b"Bearer" + raw,
        b"Bearer\t" + raw,
        b"Bearer\xa0" + raw,
        raw,
        b"",
        b"Bearer",
        b"Bearer ,",
        b"Bearer Bearer " + raw,
        b"Bearer x, Bearer " + raw,
        b"Bearer " + raw + b", Bearer x",
        b"MUNGE",
        b"MUNGE MUNGE:AwQDAAA=:",
        b"\xff\xfe",
        b"Bearer \xff" + raw,
        b"Bearer " + raw.replace(b"o", b"\xf6"),
        b"Bearer " + token.replace("o", "\N{CYRILLIC SMALL LETTER O}").encode(),
        b"Bearer " + raw + "\N{ZERO WIDTH SPACE}".encode(),
    ]
    return list(dict.fromkeys(values))


def test_forged_tokens(service):
    """Hundreds of forgeries, on four requests each: 401, and nothing of the credential in the answer or the log."""
    found = forgeries(service.tokens["ann"])
    assert len(found) > 200
    for value in found:
        for line in (b"GET /v1/queue", b"POST /v1/tasks", b"DELETE /v1/tasks/x", b"GET /v1/events"):
            request = line + b" HTTP/1.1\r\nHost: b\r\nAuthorization: " + value + b"\r\n\r\n"
            ((status, body),) = ask(service.connect(), request)
            assert (status, error_of(body)) == (401, "Unauthenticated"), value
            assert service.tokens["ann"].encode()[8:] not in body
    assert service.tokens["ann"][8:] not in service.log


def test_a_token_is_no_longer_taken_once_it_is_revoked(tmp_path):
    from qloom.broker.auth.tokens import TokenFile

    with attacked(tmp_path) as service, service.client("ann") as ann:
        assert ann.get("/v1/queue").status_code == 200
        TokenFile(tmp_path / "tokens.json").revoke("ann")
        assert ann.get("/v1/queue").status_code == 401
        with service.client("bob") as bob:
            assert bob.get("/v1/queue").status_code == 200


def test_nothing_but_three_pages_is_open(service):
    with service.client() as stranger:
        pages = stranger.get("/openapi.json").json()["paths"]
        assert len(pages) > 8
        for path, methods in pages.items():
            for method in methods:
                answer = stranger.request(method, path.replace("{id}", "x").replace("{name}", "q"))
                expected = 200 if path in ("/healthz", "/metrics", "/openapi.json") else 401
                assert answer.status_code == expected, (method, path)
        for path in ("/docs", "/redoc", "/", "/v1", "/v1/", "/static/x", "/debug"):
            assert stranger.get(path).status_code == 401


def test_tasks_of_other_projects_are_not_there(service):
    with service.client("ann") as ann, service.client("bob") as bob:
        id = ann.post("/v1/tasks", json=form("secret body", name="secret name", seconds=0.0)).json()["id"]
        foreign = [
            bob.get(f"/v1/tasks/{id}"),
            bob.get(f"/v1/tasks/{id}?wait=1"),
            bob.get(f"/v1/tasks/{id}/result"),
            bob.get(f"/v1/tasks/{id}/result?wait=1"),
            bob.delete(f"/v1/tasks/{id}"),
        ]
        nowhere = bob.get("/v1/tasks/0000000000000000")
        for answer in foreign:
            assert answer.status_code == 404
            assert answer.json()["message"].replace(id, "X") == nowhere.json()["message"].replace("0" * 16, "X")
        assert "secret" not in bob.get("/v1/queue").text + bob.get("/metrics").text
        assert bob.post("/v1/tasks", json=form(project="physics")).status_code == 403
        assert ann.get(f"/v1/tasks/{id}/result?wait=30").json()["state"] == "done"  # bob did not cancel it


def test_sessions_of_other_projects_are_not_there(service):
    with service.client("ann") as ann, service.client("bob") as bob:
        id = ann.post("/v1/sessions", json={"device": "q"}).json()["id"]
        assert bob.get(f"/v1/sessions/{id}").status_code == 404
        assert bob.delete(f"/v1/sessions/{id}").status_code == 404
        assert bob.post("/v1/tasks", json=form(session=id)).status_code == 404
        assert bob.post("/v1/sessions", json={"device": "q", "project": "physics"}).status_code == 403
        assert ann.get(f"/v1/sessions/{id}").json()["state"] == "open"
        assert ann.delete(f"/v1/sessions/{id}").status_code == 200


def test_an_idempotency_key_belongs_to_its_user(service):
    with service.client("ann") as ann, service.client("bob") as bob:
        mine = ann.post("/v1/tasks", json=form("mine", key="the same key")).json()
        theirs = bob.post("/v1/tasks", json=form("theirs", key="the same key"))
        assert theirs.status_code == 201
        assert theirs.json()["id"] != mine["id"]
        again = bob.post("/v1/tasks", json=form("mine", key="the same key"))
        assert again.status_code == 409
        assert mine["id"] not in again.text


def test_events_of_other_projects_are_not_heard(service):
    with (
        service.client("ann") as ann,
        service.client("bob") as bob,
        bob.stream("GET", "/v1/events") as events,
        bob.stream("GET", "/v1/events", headers={"Last-Event-ID": "0-0"}) as replayed,
    ):
        lines, past = events.iter_lines(), replayed.iter_lines()
        assert next(lines).startswith(":")
        hidden = ann.post("/v1/tasks", json=form(name="secret"), params={"wait": 30}).json()["id"]
        own = bob.post("/v1/tasks", json=form(name="own"), params={"wait": 30}).json()["id"]
        for heard in (lines, past):
            seen = ""
            while not (own in seen and "done" in seen):
                seen += next(heard)
            assert hidden not in seen
            assert "secret" not in seen


def test_only_administrators_run_the_site(service):
    calls = (
        ("POST", "/v1/devices/q/drain", None),
        ("POST", "/v1/devices/q/resume", None),
        ("PUT", "/v1/devices/q/shares", {"shares": 2}),
        ("GET", "/v1/reconcile", None),
    )
    with service.client("bob") as bob:
        for method, path, body in calls:
            assert bob.request(method, path, json=body).status_code == 403


# Munge, with a munged that is real


@pytest.fixture
def behind_munge(munge, tmp_path):  # noqa: F811
    """A broker that takes munge credentials, and how to make one."""
    lib, socket = munge
    auth = {"methods": ["munge"], "munge_socket": str(socket), "admins": ["daemon"]}
    projects = {"a": {"members": ["nobody"]}, "b": {"members": ["daemon"]}}
    with attacked(tmp_path, auth=auth, projects=projects) as service:
        yield service, lib, socket


def send(service: Attacked, credential: str, method: str, path: str, body: bytes = b"") -> httpx.Response:
    headers = {"Authorization": f"MUNGE {credential}", "Content-Type": "application/json"}
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=PATIENCE_S) as client:
        return client.request(method, path, content=body, headers=headers)


@needs_munge
def test_tricks_with_munge(behind_munge):
    service, lib, socket = behind_munge
    body = json.dumps(form()).encode()
    stated = statement("POST", "/v1/tasks", body)

    credential = encode_as(NOBODY, socket, stated)
    made = send(service, credential, "POST", "/v1/tasks", body)
    assert (made.status_code, made.json()["project"]) == (201, "a")
    assert send(service, credential, "POST", "/v1/tasks", body).status_code == 401  # again

    others = {
        "method": ("PUT", "/v1/tasks", body),
        "path": ("POST", "/v1/sessions", body),
        "query": ("POST", "/v1/tasks?wait=1", body),
        "body": ("POST", "/v1/tasks", body.replace(b"1", b"2")),
        "length": ("POST", "/v1/tasks", body + b" "),
        "no body": ("POST", "/v1/tasks", b""),
    }
    before = len(list(service.tasks.iterdir()))
    for what, (method, path, content) in others.items():
        answer = send(service, lib.encode(stated), method, path, content)
        assert (answer.status_code, answer.json()["error"]) == (401, "Unauthenticated"), what
    assert len(list(service.tasks.iterdir())) == before

    theirs = f"/v1/tasks/{made.json()['id']}"  # another user, with a credential of their own
    assert send(service, encode_as(DAEMON, socket, statement("GET", theirs, b"")), "GET", theirs).status_code == 200
    assert send(service, lib.encode(statement("GET", theirs, b"")), "GET", theirs).status_code == 404
    drain = "/v1/devices/q/drain"
    assert send(service, encode_as(NOBODY, socket, statement("POST", drain, b"")), "POST", drain).status_code == 403
    assert send(service, lib.encode(statement("POST", drain, b"")), "POST", drain).status_code == 403  # root
    assert send(service, encode_as(DAEMON, socket, statement("POST", drain, b"")), "POST", drain).status_code == 200

    good = lib.encode(stated)
    for forged in (good[:-10], good[:20] + "A" + good[21:], good.lower(), good + good, "MUNGE::", "x" * 10_000):
        assert send(service, forged, "POST", "/v1/tasks", body).status_code == 401
    assert send(service, good, "POST", "/v1/tasks", body).status_code == 403  # root is in no project


@needs_munge
def test_a_body_is_not_awaited_for_a_wrong_munge_credential(behind_munge):
    service, lib, _socket = behind_munge
    for stated in (statement("POST", "/v1/sessions", b""), b"nonsense"):
        head = service.head(None, Content_Length=1000, Authorization=f"MUNGE {lib.encode(stated)}")
        with service.connect() as connection:
            connection.sendall(head + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 401")


@needs_munge
@pytest.mark.skipif(shutil.which("munge") is None, reason="NOT TESTED: expired credentials need the command munge")
def test_a_munge_credential_that_is_too_old(behind_munge):
    service, _lib, socket = behind_munge
    text = statement("GET", "/v1/queue", b"").decode()
    command = ["munge", f"--socket={socket}", "--ttl=1", f"--string={text}"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    old_s = time.time() + 2.5  # its life is one second, in whole seconds of the clock
    while (left_s := old_s - time.time()) > 0:
        time.sleep(left_s)
    answer = send(service, made.stdout.strip(), "GET", "/v1/queue")
    assert (answer.status_code, "too old" in answer.json()["message"]) == (401, True)
