"""Tokens under attack: revoked, expired, read-only or of a former member, with streams and waits still open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import typer
from typer.testing import CliRunner

from qloom.broker.auth.callers import Authenticator, RequestHead
from qloom.broker.auth.tokens import TokenFile
from qloom.broker.feed import News
from qloom.broker.server.http import make_app
from qloom.cli import broker as broker_commands
from qloom.errors import InputError
from tests.broker.processes import Service
from tests.broker.test_service import free_port
from tests.broker.web import form, service

NOBODY = 65534
LIMIT_S = 60.0  # bounds a test that would wait for ever; nothing is measured with it

app = typer.Typer()
broker_commands.add_to(app)


class Site:
    """A broker as a process, and the command line of whoever runs it."""

    def __init__(self, directory) -> None:
        projects = {"physics": {"members": ["ann", "bob"]}, "chemistry": {}}
        self.service = Service(directory, listen=[f"127.0.0.1:{free_port()}"], projects=projects)
        self.config = directory / "broker.toml"
        self.file = directory / "tokens.json"

    def qloom(self, *words: str) -> str:
        done = CliRunner().invoke(app, ["broker", *words, "--config", str(self.config)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output.strip()

    def token(self, user: str, *words: str) -> str:
        return self.qloom("token", user, "--project", "physics", *words)

    def tokens(self) -> list[dict]:
        return json.loads(self.qloom("tokens", "--json"))

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=f"http://{self.service.address}", headers=headers, timeout=LIMIT_S)


@pytest.fixture(scope="module")
def running_site(tmp_path_factory) -> Iterator[Site]:
    one = Site(tmp_path_factory.mktemp("site"))
    one.service.start()
    yield one
    assert one.service.stop() == 0


@pytest.fixture
def site(running_site) -> Site:
    """Without tokens of other tests."""
    running_site.file.unlink(missing_ok=True)
    return running_site


@contextlib.contextmanager
def listening(client: httpx.Client) -> Iterator[Iterator[str]]:
    """An open stream of events, line by line, of which the first was read; a dead stream fails, it does not hang."""
    with client.stream("GET", "/v1/events", timeout=20.0) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines) == ": qloom"
        yield lines


def test_a_revoked_token_loses_its_open_stream(site):
    revoked, stays = site.token("ann"), site.token("bob")
    id = next(row["id"] for row in site.tokens() if row["user"] == "ann")
    with site.client(revoked) as ann, site.client(stays) as bob, listening(ann) as lost, listening(bob) as kept:
        site.qloom("revoke", id)
        task = bob.post("/v1/tasks", json=form("secret")).json()["id"]
        assert [line for line in lost if "task" in line] == [], "nothing is told after the token was revoked"
        assert any(task in line for line in kept), "others go on to listen"


def test_a_silent_stream_ends_as_well(site):
    revoked = site.token("ann")
    with site.client(revoked) as ann, listening(ann) as lost:
        site.qloom("token", "ann", "--revoke")
        assert list(lost) == [""]


def test_a_token_that_is_revoked_during_a_wait_is_not_answered(site):
    revoked, stays = site.token("ann"), site.token("bob", "--scope", "admin")
    with site.client(revoked) as ann, site.client(stays) as bob:
        assert bob.post("/v1/devices/q/drain").status_code == 200
        task = ann.post("/v1/tasks", json=form("result")).json()["id"]
        answers: list[httpx.Response] = []
        waits = threading.Thread(
            target=lambda: answers.append(ann.get(f"/v1/tasks/{task}/result", params={"wait": 50}))
        )
        waits.start()
        site.qloom("token", "ann", "--revoke")
        assert bob.post("/v1/devices/q/resume").status_code == 200
        waits.join(LIMIT_S)
        assert [(answer.status_code, "echo" in answer.text) for answer in answers] == [(401, False)]
        assert bob.get(f"/v1/tasks/{task}/result", params={"wait": 30}).json()["result"] == {"echo": "result"}


def test_a_token_expires_and_its_stream_with_it(site):
    for life_s in (2, 8, 32):  # on a busy machine a short one is over before it can listen
        with site.client(site.token("ann", "--days", str(life_s / 86400))) as ann:
            with ann.stream("GET", "/v1/events", timeout=LIMIT_S) as response:
                lines = list(response.iter_lines()) if response.status_code == 200 else []
            assert ann.get("/v1/queue").status_code == 401
        if lines:
            break
    assert lines == [": qloom", ""]
    assert all(row["expired"] for row in site.tokens())


def test_tokens_end_after_the_days_of_the_config_unless_said_otherwise(site):
    now_s = time.time()
    site.token("ann")
    site.token("ann", "--days", "0")
    other = site.config.with_name("other.toml")
    other.write_text(f'store = "{site.service.store}"\n[projects.physics]\n[auth]\ntoken_days = 7\n')
    CliRunner().invoke(app, ["broker", "token", "ann", "--project", "physics", "--config", str(other)])
    lives = [entry.expires_s and entry.expires_s - now_s for entry in TokenFile(site.file).entries()]
    assert lives[1] is None
    assert [round(lives[0] / 86400), round(lives[2] / 86400)] == [90, 7]
    for wrong in ("-1", "nan", "inf", "1e9"):
        with pytest.raises(InputError, match="a token counts for 0 to 36500 days"):
            site.token("ann", "--days", wrong)


def test_a_token_that_may_only_read_changes_nothing(site):
    """Every operation of the interface that is not a GET, so that a new one is refused as well."""
    with site.client(site.token("ann")) as ann, site.client(site.token("ann", "--scope", "read")) as reader:
        task = ann.post("/v1/tasks", json=form("x")).json()["id"]
        assert reader.get(f"/v1/tasks/{task}/result", params={"wait": 30}).json()["result"] == {"echo": "x"}
        operations = reader.get("/openapi.json").json()["paths"]
        changes = [(verb, path) for path, verbs in operations.items() for verb in verbs if verb != "get"]
        assert len(changes) >= 7
        for verb, path in changes:
            answer = reader.request(verb.upper(), path.format(id=task, name="q"), json=form("y"))
            assert (answer.status_code, "may only read" in answer.text) == (403, True), (verb, path)
        assert reader.get("/v1/reconcile").status_code == 403
    with pytest.raises(InputError, match="no scope is called 'write'"):
        site.token("ann", "--scope", "write")


def test_tokens_are_listed_without_secrets_and_revoked_one_by_one(site):
    first, second = site.token("ann"), site.token("ann", "--scope", "admin")
    listed = site.qloom("tokens", "--json")
    for secret in (
        first,
        second,
        first[6:],
        second[6:],
        *(entry.sha256 for entry in TokenFile(site.file).entries()),
    ):
        assert secret not in listed
    rows = json.loads(listed)
    assert [(row["user"], row["projects"], row["scope"], row["used"]) for row in rows] == [
        ("ann", ["physics"], "submit", None),
        ("ann", ["physics"], "admin", None),
    ]
    assert site.qloom("tokens", "--quiet").split() == [row["id"] for row in rows]
    with site.client(first) as one, site.client(second) as other:
        assert [client.get("/v1/queue").status_code for client in (one, other)] == [200, 200]
        today = time.strftime("%Y-%m-%d", time.gmtime())
        assert all(row["used"] >= today for row in site.tokens())
        site.qloom("revoke", rows[0]["id"])
        assert [client.get("/v1/queue").status_code for client in (one, other)] == [401, 200]
    with pytest.raises(InputError, match="no token has the id"):
        site.qloom("revoke", rows[0]["id"])
    assert "admin" in site.qloom("tokens")


def test_a_token_counts_only_for_who_is_still_a_member(site):
    """A token of a former member, or for a project that was removed, is worth nothing there."""
    tokens = TokenFile(site.file)
    with site.client(tokens.add("eve", ["physics"])) as eve, site.client(tokens.add("eve", ["gone"])) as late:
        for client, project in ((eve, "physics"), (late, "gone")):
            assert client.post("/v1/tasks", json=form("x")).status_code == 403
            assert client.post("/v1/tasks", json=form("x", project=project)).status_code == 403
    with site.client(tokens.add("eve", ["chemistry"])) as eve:  # a project without a list
        assert eve.post("/v1/tasks", json=form("x")).status_code == 201
    with pytest.raises(InputError, match="eve is not a member of project physics"):
        site.token("eve")


def test_a_token_for_one_project_reaches_nothing_of_its_user_in_another(site):
    both = site.qloom("token", "ann", "--project", "physics", "--project", "chemistry")
    one = site.qloom("token", "ann", "--project", "chemistry")
    with site.client(both) as wide, site.client(one) as narrow, listening(narrow) as lines:
        task = wide.post("/v1/tasks", json=form("x", project="physics")).json()["id"]
        session = wide.post("/v1/sessions", json={"device": "q", "hold": "share", "project": "physics"}).json()["id"]
        reached = [
            narrow.get(f"/v1/tasks/{task}"),
            narrow.get(f"/v1/tasks/{task}/result"),
            narrow.delete(f"/v1/tasks/{task}"),
        ]
        reached += [narrow.get(f"/v1/sessions/{session}"), narrow.delete(f"/v1/sessions/{session}")]
        reached += [narrow.post("/v1/tasks", json=form("y", session=session))]
        assert [answer.status_code for answer in reached] == [404] * 6
        own = narrow.post("/v1/tasks", json=form("z")).json()["id"]
        heard = next(line for line in lines if line.startswith("data:") and '"task"' in line)
        assert own in heard, "nothing of the other project was heard before"
        assert wide.delete(f"/v1/sessions/{session}").status_code == 200


def test_a_changed_member_list_counts_for_open_streams_and_waits(tmp_path):
    async def main() -> None:
        async with service(tmp_path) as (broker, client, _web):
            auth = Authenticator(
                ("token",), TokenFile(tmp_path / "tokens.json"), {"physics": ("ann",), "chemistry": ("bob",)}
            )
            changed = make_app(broker, auth)
            transport = httpx.ASGITransport(changed)
            async with (
                client("ann") as ann,
                httpx.AsyncClient(transport=transport, base_url="http://b", headers=ann.headers) as guarded,
            ):
                task = (await guarded.post("/v1/tasks", json=form("x", seconds=0.5))).json()["id"]
                waiting = asyncio.ensure_future(guarded.get(f"/v1/tasks/{task}/result", params={"wait": 30}))
                caller = await _caller(auth, ann.headers["Authorization"])
                listener = broker.feed.listen(caller, None, auth.current)
                while not any(task.ended for task in broker.registry.tasks.values()):
                    await asyncio.sleep(0)
                auth.replace_members({"physics": (), "chemistry": ("bob",)}, ())
                answer = await waiting
                assert (answer.status_code, "echo" in answer.text) == (503, False), (
                    "clients ask again, as who they are now"
                )
                assert (await guarded.get(f"/v1/tasks/{task}/result")).status_code == 404
                broker.feed.publish(News({"event": "task", "state": "secret"}, "physics", "ann"))
                broker.feed.publish(News({"event": "device"}))
                assert [event["event"] for _id, event in [await listener.next()]] == ["device"]
                auth.replace_members({"physics": ("ann",)}, ())
                assert (await guarded.get(f"/v1/tasks/{task}/result")).status_code == 200

    async def _caller(auth, authorization):
        return (await auth.identify(RequestHead("GET", "/", None, authorization))).caller

    asyncio.run(main())


def test_a_file_of_tokens_made_before_there_were_scopes_counts(tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.add("ann", ["physics"])
    (entry,) = json.loads(tokens.path.read_text())
    old = {"user": "ann", "projects": ["physics"], "admin": True, "sha256": entry["sha256"]}
    tokens.path.write_text(json.dumps([old]))
    caller = TokenFile(tokens.path).caller(token)
    assert (caller.user, caller.projects, caller.admin, caller.read_only) == ("ann", ("physics",), True, False)


@pytest.mark.parametrize("wrong", ["{", "[1]", '[{"user": "ann"}]', '[{"scope": "all", "user": "a"}]', "null"])
def test_a_damaged_file_of_tokens_lets_nobody_in(tmp_path, wrong):
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.add("ann", ["physics"])
    tokens.path.write_text(wrong)
    for look in (lambda: tokens.caller(token), tokens.entries, lambda: tokens.add("bob", ["physics"])):
        with pytest.raises(InputError, match=r"cannot be read|no scope"):
            look()


needs_users = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="NOT TESTED: another user id needs root"
)


def as_nobody(*words: str) -> subprocess.CompletedProcess:
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-m", "qloom"]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False, cwd="/", timeout=LIMIT_S)


@needs_users
@pytest.mark.parametrize("below", ["", "not/there/yet"])
def test_the_service_makes_tokens_after_root_has_made_the_first(open_path, below):
    owned = open_path / "var"
    owned.mkdir()
    os.chown(owned, NOBODY, NOBODY)
    config = open_path / "broker.toml"
    config.write_text(f'store = "{owned / below / "broker.db"}"\n[projects.physics]\n')
    words = ("broker", "token", "ann", "--project", "physics", "--config", str(config))
    CliRunner().invoke(app, list(words), catch_exceptions=False)
    done = as_nobody(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("qloom_")
    listed = json.loads(CliRunner().invoke(app, ["broker", "tokens", "--json", "--config", str(config)]).stdout)
    assert [row["user"] for row in listed] == ["ann", "ann"]
    revoked = as_nobody("broker", "revoke", listed[0]["id"], "--config", str(config))
    assert revoked.returncode == 0, revoked.stderr


@needs_users
def test_tokens_belong_to_whoever_owns_the_store(open_path):
    (open_path / "var").mkdir(mode=0o755)
    store = open_path / "var" / "broker.db"
    store.touch()
    os.chown(store, NOBODY, NOBODY)
    tokens = TokenFile(open_path / "var" / "tokens.json", store)
    tokens.add("ann", ["physics"])
    assert tokens.path.stat().st_uid == NOBODY
    assert [entry.user for entry in tokens.entries()] == ["ann"]


@needs_users
def test_a_file_of_tokens_that_another_user_has_planted_lets_nobody_in(tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.add("ann", ["physics"], "admin")
    os.chown(tokens.path, NOBODY, NOBODY)
    with pytest.raises(InputError, match="belongs to another user"):
        TokenFile(tokens.path).caller(token)
    os.chown(tokens.path, 0, 0)
    tokens.path.rename(tmp_path / "elsewhere")
    tokens.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is not a file"):
        TokenFile(tokens.path).caller(token)
