"""Who may look and who may change something: a link works once, and only from this user's own page."""

from __future__ import annotations

import asyncio
import os
import socket

import httpx
import pytest

from qloom.dashboard import access
from qloom.dashboard.access import LoginKeys, is_local_name, uid_of
from qloom.dashboard.replay import replay_apart
from qloom.dashboard.serve import require_local, resume_in_background
from qloom.errors import InputError
from qloom.journal import home
from qloom.journal.file import FILE_NAME
from tests.dashboard.conftest import Dashboard


@pytest.fixture
def client(dashboard):
    with httpx.Client(base_url=dashboard.address, headers={"Origin": dashboard.address}, timeout=30) as opened:
        yield opened


def logged_in(client, dashboard):
    answer = client.post("/login", json={"key": dashboard.key})
    assert answer.status_code == 204
    return answer


def test_a_link_works_once_and_becomes_a_cookie_that_scripts_cannot_read(client, dashboard):
    assert client.get("/api/session").status_code == 401
    cookie = logged_in(client, dashboard).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Max-Age=43200" in cookie
    assert dashboard.key not in cookie
    assert client.get("/api/session").status_code == 200
    again = client.post("/login", json={"key": dashboard.key})
    assert (again.status_code, again.json()["error"]) == (401, "this link was used before or has expired")
    other = httpx.post(
        f"{dashboard.address}/login",
        json={"key": dashboard.new_link().partition("#key=")[2]},
        headers={"Origin": dashboard.address},
    )
    assert other.status_code == 204


def test_every_answer_forbids_what_the_page_does_not_need(client):
    headers = client.get("/").headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    for part in ("frame-ancestors 'none'", "form-action 'none'", "require-trusted-types-for 'script'"):
        assert part in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "'unsafe" not in policy


def test_changes_need_the_token_and_our_own_page(client, dashboard):
    logged_in(client, dashboard)
    token = client.get("/api/session").json()["token"]
    path = "/api/runs/20260101-000000-000000/cancel"
    assert client.post(path, json={}).status_code == 403
    assert client.post(path, json={}, headers={"X-Qloom-Token": "wrong"}).status_code == 403
    elsewhere = {"X-Qloom-Token": token, "Origin": "http://evil.example"}
    assert client.post(path, json={}, headers=elsewhere).status_code == 403
    crossing = {"X-Qloom-Token": token, "Sec-Fetch-Site": "cross-site"}
    assert client.post(path, json={}, headers=crossing).status_code == 403
    assert client.post(path, json={}, headers={"X-Qloom-Token": token}).status_code == 404


def test_only_runs_and_the_page_are_there(client, dashboard):
    logged_in(client, dashboard)
    for path in ("/api/runs/..%2f..%2fetc", "/api/runs/%2e%2e", "/../app.py", "/app.py", "/api/other"):
        assert client.get(path).status_code == 404, path


def test_another_name_of_this_machine_and_other_sites_are_refused(client, dashboard):
    logged_in(client, dashboard)
    assert client.get("/", headers={"Host": "rebound.example"}).status_code == 403
    assert client.get("/api/session", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.post("/login", json={}, headers={"Origin": "http://evil.example"}).status_code == 403
    for body in (b"[]", b"no json", b'{"key": 1}', b"[" * 4000, b'{"key": "\\ud800"}'):
        assert client.post("/login", content=body).status_code in (400, 401)
    assert client.post("/login", content=b" " * 5000).status_code == 413


@pytest.mark.parametrize(
    ("host", "is_ours"), [("localhost:1", True), ("127.0.0.1", True), ("[::1]:80", True), ("a.b", False)]
)
def test_names_of_this_machine(host, is_ours):
    assert is_local_name(host) is is_ours


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_user_at_the_other_end_of_a_connection_is_known(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server, socket.socket(family) as client:
        client.connect(server.getsockname()[:2])
        accepted, address = server.accept()
        with accepted:
            assert uid_of(address[:2], server.getsockname()[:2]) == os.getuid()
    assert uid_of((host, 1), (host, 2)) is None


def test_other_users_of_the_machine_are_refused(monkeypatch):
    from qloom.broker.problems import Forbidden
    from qloom.dashboard.app import _require_own_user

    own = {"client": ("uid", os.getuid()), "server": None}
    _require_own_user(own)
    with pytest.raises(Forbidden, match="another user"):
        _require_own_user({"client": ("uid", os.getuid() + 1), "server": None})


def test_keys_expire(tmp_path, monkeypatch):
    keys = LoginKeys(tmp_path / "keys")
    key = keys.make()
    monkeypatch.setattr(access, "KEY_S", -1.0)
    assert not keys.use(key)
    keys.make()
    keys.make()
    assert len(list((tmp_path / "keys").iterdir())) == 1  # the ones before have gone
    assert not keys.use("no key")


def test_a_unix_socket_is_for_this_user_alone(tmp_path):
    path = tmp_path / "dashboard.sock"
    dashboard = Dashboard("--listen", f"unix:{path}")
    try:
        assert f"ssh -L 8765:{path}" in dashboard.lines(1)[0]
        assert path.stat().st_mode & 0o777 == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://127.0.0.1:8765") as client:
            assert client.post(
                "/login", json={"key": dashboard.key}, headers={"Origin": "http://127.0.0.1:8765"}
            ).is_success
            assert client.get("/api/session").status_code == 200
    finally:
        assert dashboard.stop() == 0


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.1:80", "nonsense", "example.org:80"])
def test_what_other_machines_could_reach_is_refused(listen):
    with pytest.raises(InputError):
        require_local(listen)


def test_modules_that_others_put_into_the_working_directory_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "qloom").mkdir()
    (tmp_path / "qloom" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    run = home.new_run()
    (run / FILE_NAME).touch()
    with pytest.raises(InputError):
        asyncio.run(replay_apart(run.name, {}))
    with pytest.raises(InputError):
        resume_in_background(run.name)
    assert not (tmp_path / "ran").exists()
