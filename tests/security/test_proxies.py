"""A proxy in front of the broker: it speaks for users if the config trusts it, and is never taken for one itself."""

from __future__ import annotations

import os
import pwd

import httpx
import pytest

from tests.security.server import PATIENCE_S, STRANGER, Attacked, ask, attacked

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a peer that is root needs root")
ME = pwd.getpwuid(os.geteuid()).pw_name


def over_unix(service: Attacked, **headers: str) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(service.socket))
    return httpx.Client(transport=transport, base_url="http://b", headers=headers, timeout=PATIENCE_S)


def status(client: httpx.Client, admin: bool = False) -> int:
    return client.post("/v1/devices/q/resume").status_code if admin else client.get("/v1/queue").status_code


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A broker that knows of no proxy, and names no administrator."""
    with attacked(tmp_path_factory.mktemp("plain"), auth={}) as service:
        yield service


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """A broker behind a proxy of ours on the unix socket, and one at another address."""
    auth = {"admins": ["bob", ME], "proxies": [ME, f"{STRANGER}/32"]}
    with attacked(tmp_path_factory.mktemp("behind"), auth=auth) as service:
        yield service


@needs_root
def test_root_is_no_administrator_by_itself(plain):
    with over_unix(plain) as root:
        assert (status(root), status(root, admin=True)) == (200, 403)


@needs_root
def test_root_is_one_if_the_config_says_so(tmp_path):
    with attacked(tmp_path, auth={"admins": ["root"]}) as service, over_unix(service) as root:
        assert status(root, admin=True) == 200


@pytest.mark.parametrize("user", ["ann", "root", ME, "nobody", ""])
def test_nobody_else_may_name_a_user(plain, behind, user):
    for client in (
        over_unix(plain, **{"X-Remote-User": user}),
        plain.client("ann", **{"X-Remote-User": user}),
        plain.client(None, **{"x-remote-USER": user}),
        behind.client("ann", **{"X-Remote-User": user}),
        behind.client(None, **{"X-Remote-User": user}),
    ):
        with client:
            assert (status(client), status(client, admin=True)) == (401, 401)


@pytest.mark.parametrize(
    "header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
)
def test_a_proxy_that_nobody_knows_is_not_taken_for_its_own_user(plain, header):
    with over_unix(plain, **{header: "10.0.0.1"}) as proxy:
        answer = proxy.get("/v1/queue")
        assert answer.status_code == 401
        assert "[auth] proxies" in answer.json()["hint"]


def test_who_is_behind_a_proxy(behind):
    for proxy in (over_unix, lambda service, **headers: service.client(None, STRANGER, **headers)):
        with proxy(behind, **{"X-Remote-User": "ann"}) as ann, proxy(behind, **{"X-Remote-User": "bob"}) as bob:
            assert (status(ann), status(ann, admin=True)) == (200, 403)
            assert (status(bob), status(bob, admin=True)) == (200, 200)
            made = bob.post("/v1/tasks", json={"kind": "test", "body": 1}).json()
            assert made["project"] == "chemistry"
            assert ann.get(f"/v1/tasks/{made['id']}").status_code == 404


def test_a_proxy_is_nobody_without_a_user(behind):
    """Not even an administrator, though its own user is one."""
    for client in (over_unix(behind), behind.client(None, STRANGER)):
        with client:
            assert (status(client), status(client, admin=True)) == (401, 401)


def test_a_proxy_may_pass_on_a_token(behind):
    token = {"Authorization": f"Bearer {behind.tokens['ann']}", "X-Forwarded-For": "10.0.0.1"}
    with over_unix(behind, **token) as ann:
        assert (status(ann), status(ann, admin=True)) == (200, 403)
    with over_unix(behind, **token, **{"X-Remote-User": "bob"}) as both:
        assert status(both) == 401


@pytest.mark.parametrize("name", ["", "*", "a b", "ann,bob", "../ann", "-ann", "a" * 65, "\xe4nn", "ann\t"])
def test_what_is_no_user_name_is_refused(behind, name):
    request = b"GET /v1/queue HTTP/1.1\r\nHost: b\r\nX-Remote-User: " + name.encode("latin-1") + b"\r\n\r\n"
    expected = 200 if name.strip() == "ann" else 401  # white space around a value is not part of it
    assert [found for found, _ in ask(behind.connect_unix(), request)] == [expected]


def test_two_users_are_refused(behind):
    twice = b"GET /v1/queue HTTP/1.1\r\nHost: b\r\nX-Remote-User: ann\r\nx-remote-user: bob\r\n\r\n"
    assert [found for found, _ in ask(behind.connect_unix(), twice)] == [400]


def test_another_header_may_be_chosen(tmp_path):
    auth = {"proxies": [str(os.geteuid())], "proxy_header": "X-Site-User"}
    with attacked(tmp_path, auth=auth) as service:
        with over_unix(service, **{"X-Site-User": "ann"}) as ann:
            assert status(ann) == 200
        with over_unix(service, **{"X-Remote-User": "ann"}) as nobody:
            assert status(nobody) == 401


def test_connections_of_a_proxy_are_those_of_many_users(tmp_path):
    limits = {"connections": 12, "peer_connections": 2}
    with attacked(tmp_path, auth={"proxies": [STRANGER]}, limits=limits) as service:
        held = [service.connect(STRANGER) for _ in range(5)]
        with service.client(None, STRANGER, **{"X-Remote-User": "ann"}) as ann:
            assert status(ann) == 200
        for one in held:
            one.close()
