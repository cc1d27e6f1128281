"""Strangers and users who take connections, memory, descriptors and log lines: others are served all the same."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from tests.security.server import (
    STRANGER,
    answer,
    answers,
    ask,
    attacked,
    error_of,
    form,
    until,
)

MB = 2**20


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """A broker with the usual limits."""
    with attacked(tmp_path_factory.mktemp("usual")) as service:
        yield service


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A broker whose deadlines are short, for those who do not go on; none is for those who wait for a task."""
    limits = {"header_s": 1.0, "body_s": 1.0, "idle_s": 1.0, "stalled_s": 1.0}
    with attacked(tmp_path_factory.mktemp("hasty"), limits=limits) as service:
        yield service


def test_who_asks_is_known_before_a_body_is_read(usual):
    """The broker answers at once, though the body that was announced never comes."""
    for headers in ({"Authorization": "Bearer wrong"}, {}, {"Authorization": "Basic eDp5"}):
        with usual.connect() as stranger:
            stranger.sendall(usual.head(None, Content_Length=8 * MB, **headers) + b"\r\n" + b"x" * 1000)
            status, body = answer(stranger)
            assert (status, error_of(body)) == (401, "Unauthenticated")


def test_a_stranger_is_not_told_to_go_on(usual):
    with usual.connect() as stranger:
        stranger.sendall(usual.head(None, Content_Length=MB, Expect="100-continue") + b"\r\n")
        assert answer(stranger)[0] == 401
    with usual.connect() as ann:
        ann.sendall(usual.head("ann", Content_Length=2, Expect="100-continue") + b"\r\n")
        assert answer(ann)[0] == 100
        ann.sendall(b"{}")
        assert answer(ann)[0] == 422


def test_a_body_that_is_too_large_is_refused_by_its_header(usual):
    with usual.connect() as ann:
        ann.sendall(usual.head("ann", Content_Length=10**15) + b"\r\n")
        assert answer(ann)[0] == 413


def test_half_a_header_is_not_held(hasty):
    with contextlib.ExitStack() as opened:
        halves = [opened.enter_context(hasty.connect()) for _ in range(200)]
        for number, half in enumerate(halves):
            half.sendall(hasty.head("ann")[: number % 60])  # some have sent nothing at all
        hasty.works_for("bob", STRANGER)
        for half in halves:
            assert [status for status, _ in answers(half)] in ([], [408])


@pytest.mark.parametrize("first", [b"", b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n"])
def test_one_byte_now_and_then_does_not_extend_the_deadline(hasty, first):
    with hasty.connect() as slow:
        if first:
            slow.sendall(first)
            assert answer(slow)[0] == 200
        slow.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        closed = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                while not closed.wait(0.1):
                    slow.send(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert [status for status, _ in answers(slow)] in ([], [408])
        finally:
            closed.set()
            thread.join()


def test_a_body_that_does_not_come_is_408(hasty):
    with hasty.connect() as ann:
        ann.sendall(hasty.head("ann", Content_Length=100) + b"\r\n{")
        ((status, body),) = answers(ann)  # and the connection is closed
        assert (status, error_of(body)) == (408, "TooSlow")


def test_an_idle_connection_is_closed(hasty):
    with hasty.connect() as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n")
        assert [status for status, _ in answers(idle)] == [200]


def test_the_rest_of_a_refused_body_is_not_read_for_ever(hasty):
    with hasty.connect() as stranger:
        stranger.sendall(hasty.head(None, Content_Length=10**9) + b"\r\n")
        assert answer(stranger)[0] == 401
        with pytest.raises(OSError):  # noqa: PT012
            while True:
                stranger.sendall(b"x" * MB)


def test_waiting_for_a_task_has_no_such_deadline(hasty):
    with hasty.client("ann") as ann:
        done = ann.post("/v1/tasks", json=form(seconds=3.0), params={"wait": 30}).json()
        assert done["state"] == "done"
        with ann.stream("GET", "/v1/events") as events:
            lines = events.iter_lines()
            assert next(lines) == ": qloom"
            task = threading.Timer(2.5, hasty.works_for, ("ann",))
            task.start()
            assert any("done" in line for line in lines)
            task.join()


def test_an_answer_that_nobody_reads_is_dropped(hasty):
    with hasty.client("ann") as ann:
        id = ann.post("/v1/tasks", json=form("x" * 8 * MB), params={"wait": 30}).json()["id"]
    until(lambda: hasty.connections() <= 4)  # what it listens with, and the event loop's own
    with contextlib.ExitStack() as opened:
        for _ in range(5):
            deaf = opened.enter_context(hasty.connect())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(hasty.head("ann", f"GET /v1/tasks/{id}/result") + b"\r\n")
            assert deaf.recv(1, socket.MSG_PEEK)
        until(lambda: hasty.connections() <= 4)
    assert "did not read its answer" in hasty.log


def test_bodies_have_a_budget_of_memory(tmp_path):
    """Of 60 requests of 8 MiB that are sent in full, few are in memory at once; nobody else waits for them."""
    limits = {"max_bytes": 8 * MB, "body_bytes": 32 * MB, "user_body_bytes": 16 * MB, "body_s": 300.0}
    with attacked(tmp_path, limits=limits) as service:
        service.works_for("bob")
        before = service.memory_bytes()
        with contextlib.ExitStack() as opened:
            left: dict[socket.socket, int] = {}
            for _ in range(60):
                one = opened.enter_context(service.connect())
                one.sendall(service.head("ann", Content_Length=8 * MB) + b"\r\n")
                one.setblocking(False)
                left[one] = 8 * MB - 1  # never the last byte
            before_round = 0
            while before_round != sum(left.values()):  # as much as is taken
                before_round = sum(left.values())
                for one in left:
                    with contextlib.suppress(BlockingIOError):
                        while left[one] > 0:
                            left[one] -= one.send(b" " * min(left[one], 65536))
                service.works_for("bob")
            assert service.memory_bytes() - before < 150 * MB
        service.works_for("ann")  # what the others held is free again


def test_a_request_beyond_the_budget_is_told_to_come_again(tmp_path):
    limits = {"max_bytes": MB, "body_bytes": 2 * MB, "user_body_bytes": MB, "body_s": 2.0}
    with attacked(tmp_path, limits=limits) as service, contextlib.ExitStack() as opened:
        both = [opened.enter_context(service.connect()) for _ in range(2)]
        for one in both:
            one.sendall(service.head("ann", Content_Length=MB) + b"\r\n")
        found = sorted(answer(one) for one in both)
        assert [(status, error_of(body)) for status, body in found] in (
            [(408, "TooSlow"), (503, "Unavailable")],
            [(408, "TooSlow"), (408, "TooSlow")],  # the second got its turn when the first was over
        )


def test_one_peer_cannot_take_all_connections(tmp_path):
    with attacked(tmp_path, limits={"connections": 12, "peer_connections": 6}) as service:
        with contextlib.ExitStack() as opened:
            for _ in range(6):
                opened.enter_context(service.connect())
            for _ in range(50):
                ((status, body),) = ask(service.connect(), b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n")
                assert (status, error_of(body)) == (503, "Unavailable")
            service.works_for("bob", STRANGER)
            for _ in range(6):
                opened.enter_context(service.connect(STRANGER))
            ((status, _body),) = ask(service.connect("127.0.0.3"), b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n")
            assert status == 503  # that is all there are
            assert service.log.count("refused") < 20
        until(service.answers)
        service.works_for("ann")


def test_descriptors_are_kept_for_devices_and_the_store(tmp_path):
    """With 64 descriptors, and strangers who want all of them, a task that is accepted does not fail."""
    from tests.security.server import Attacked

    service = Attacked(tmp_path)
    service.prefix = ["prlimit", "--nofile=64:64"]
    service.start()
    try:
        with contextlib.ExitStack() as opened, service.client("bob", STRANGER) as bob:
            for _ in range(200):
                half = opened.enter_context(service.connect())
                half.sendall(b"GET /healthz HTTP/1.1\r\n")
            for number in range(5):
                done = bob.post("/v1/tasks", json=form(number), params={"wait": 30}).json()
                assert done["state"] == "done", done
            service.works_for("bob", STRANGER)
        assert len(service.log) < 100_000
        assert "Too many open files" not in service.log
    finally:
        assert service.stop() == 0


def test_strangers_cannot_fill_the_log(usual):
    before = len(usual.log)
    for _ in range(300):
        assert ask(usual.connect(), b"nonsense\r\n\r\n")[0][0] == 400
        ask(usual.connect(), b"GET / HTTP/1.1\r\nHost: b\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert len(usual.log) - before < 10_000


def test_wrong_credentials_are_counted_and_right_ones_are_taken(tmp_path):
    limits = {"failures_per_s": 0.001, "failures_burst": 10}
    with attacked(tmp_path, limits=limits) as service:
        with service.client() as stranger:
            found = [stranger.get("/v1/queue", headers={"Authorization": f"Bearer {n}"}) for n in range(200)]
            assert [one.status_code for one in found] == [401] * 10 + [429] * 190
            assert found[-1].headers["retry-after"] == "1"
        service.works_for("ann")
        with service.client(source=STRANGER) as other:
            assert other.get("/v1/queue").status_code == 401


def test_open_pages_are_not_free_of_limits(tmp_path):
    with attacked(tmp_path, limits={"requests_per_s": 0.001, "burst": 20}) as service:
        with service.client() as stranger:
            found = [stranger.get("/metrics").status_code for _ in range(40)]
            assert found.count(200) < 21
            assert found[-1] == 429
        service.works_for("ann")


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/queue"])
def test_a_long_list_counts_as_several_requests(tmp_path, path):
    """The loop serves nobody while it makes one: a user with many tasks could stop the broker with few requests."""
    with attacked(tmp_path, limits={"requests_per_s": 0.001, "burst": 300}) as service:
        with service.client("root") as root:
            assert root.post("/v1/devices/q/drain").status_code == 200
        with service.client("ann") as ann:
            made = [ann.post("/v1/tasks", json=form(name="x" * 200)).status_code for _ in range(200)]
            assert made == [201] * 200
            lists = [ann.get(path) for _ in range(100)]
            assert len(lists[0].content) > 2 * 32 * 1024
            answered = [one.status_code for one in lists].count(200)
            assert 5 < answered < 50, "100 requests were left"
            assert lists[-1].status_code == 429
        with service.client("bob") as bob:
            assert bob.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/v1/tasks?device=q", "/v1/queue", "/v1/sessions", "/metrics"])
def test_looking_through_a_long_queue_counts_as_several_requests_however_short_the_answer(tmp_path, path):
    """A user could queue many tasks, and then stop the broker with requests whose answers are empty."""
    module = "tests.security.short_walks"  # 20 tasks are a long queue
    limits = {"requests_per_s": 0.001, "burst": 200}
    with attacked(tmp_path, module=module, limits=limits) as service:
        with service.client("root") as root:
            assert root.post("/v1/devices/q/drain").status_code == 200
        with service.client("ann") as ann:
            tasks = [ann.post("/v1/tasks", json=form()).json()["id"] for _ in range(100)]
            looks = [ann.get(f"/v1/tasks/{tasks[-1]}").json() for _ in range(50)]
            assert looks[-1]["position"] == 99, "who asks for one task pays for one"
        with service.client("bob", STRANGER) as bob:
            found = [bob.get(path) for _ in range(60)]
            assert len(found[0].content) < 10_000
            assert [one.status_code for one in found].count(200) in (33, 34, 35), "each counts as six"


def test_streams_and_waits_of_one_user_are_counted(tmp_path):
    limits = {"streams": 2, "requests_at_once": 5}
    with attacked(tmp_path, limits=limits) as service, contextlib.ExitStack() as opened:
        ann = opened.enter_context(service.client("ann"))
        bob = opened.enter_context(service.client("bob"))
        for _ in range(2):
            stream = opened.enter_context(ann.stream("GET", "/v1/events"))
            assert stream.status_code == 200
        assert ann.get("/v1/events").status_code == 429
        id = ann.post("/v1/tasks", json=form(seconds=3600.0)).json()["id"]
        waiting = [opened.enter_context(service.connect()) for _ in range(3)]
        for one in waiting:
            one.sendall(service.head("ann", f"GET /v1/tasks/{id}/result?wait=60") + b"\r\n")
        until(lambda: ann.get("/v1/queue").status_code == 429)
        assert ann.get("/v1/queue").json()["error"] == "TooManyRequests"
        with bob.stream("GET", "/v1/events") as stream:
            assert stream.status_code == 200
        assert bob.get("/v1/queue").status_code == 200
        opened.close()
        until(lambda: _free_again(service))


def _free_again(service) -> bool:
    with service.client("ann") as ann, ann.stream("GET", "/v1/events") as stream:
        return stream.status_code == 200
