"""Requests that two programs could read differently: each is refused, or has one reading that is written down here.

The broker closes the connection after a refusal, so that what follows is never taken for another request.
"""

from __future__ import annotations

import json

import pytest

from tests.security.server import answers, ask, attacked, error_of, form

SECOND = b"GET /healthz HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"  # is it answered?
BODY = json.dumps(form()).encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with attacked(tmp_path_factory.mktemp("framing"), limits={"header_s": 2.0, "body_s": 2.0}) as service:
        yield service


def request(service, *lines: bytes, line: bytes = b"POST /v1/tasks HTTP/1.1", body: bytes = b"") -> bytes:
    """A request with `TOKEN` replaced by that of ann, and a second one behind it."""
    head = b"\r\n".join([line, b"Host: b", b"Content-Type: application/json", *lines, b"", b""])
    return head.replace(b"TOKEN", service.tokens["ann"].encode()) + body + SECOND


AUTH = b"Authorization: Bearer TOKEN"
LENGTH = b"Content-Length: %d" % len(BODY)
REFUSED = {
    "two tokens": ((AUTH, AUTH, LENGTH), BODY),
    "a right and a wrong token": ((AUTH, b"Authorization: Bearer wrong", LENGTH), BODY),
    "a wrong and a right token": ((b"authorization: x", AUTH, LENGTH), BODY),
    "a length beside chunks": ((AUTH, LENGTH, b"Transfer-Encoding: chunked"), CHUNKED),
    "chunks beside a length": ((AUTH, b"Transfer-Encoding: chunked", b"Content-Length: 0"), CHUNKED),
    "two lengths": ((AUTH, LENGTH, b"Content-Length: 1"), BODY),
    "two lengths in one": ((AUTH, b"Content-Length: %d, 1" % len(BODY)), BODY),
    "a signed length": ((AUTH, b"Content-Length: +%d" % len(BODY)), BODY),
    "a negative length": ((AUTH, b"Content-Length: -1"), BODY),
    "a length in hex": ((AUTH, b"Content-Length: 0x10"), BODY),
    "an empty length": ((AUTH, b"Content-Length:"), BODY),
    "a length of many digits": ((AUTH, b"Content-Length: " + b"9" * 50), BODY),
    "two encodings": ((AUTH, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), CHUNKED),
    "an encoding in a list": ((AUTH, b"Transfer-Encoding: identity, chunked"), CHUNKED),
    "an unknown encoding": ((AUTH, b"Transfer-Encoding: gzip"), CHUNKED),
    "an encoding with a tab": ((AUTH, b"Transfer-Encoding: \x0bchunked"), CHUNKED),
    "white space before a colon": ((AUTH, b"Transfer-Encoding : chunked"), CHUNKED),
    "white space before a name": ((AUTH, b" Transfer-Encoding: chunked"), CHUNKED),
    "a folded line": ((b"Authorization: Bearer\r\n TOKEN", LENGTH), BODY),
    "a folded encoding": ((AUTH, b"Transfer-Encoding:\r\n chunked"), CHUNKED),
    "a folded line with a tab": ((AUTH, b"X: y\r\n\tz", LENGTH), BODY),
    "a bare line feed": ((AUTH, b"X: y\nContent-Length: 0", LENGTH), BODY),
    "a bare carriage return": ((AUTH, b"X: y\rContent-Length: 0", LENGTH), BODY),
    "a header without a colon": ((AUTH, b"Nonsense", LENGTH), BODY),
    "a header without a name": ((AUTH, b": x", LENGTH), BODY),
    "a NUL in a header": ((AUTH, b"X: \x00", LENGTH), BODY),
    "a NUL in a name": ((AUTH, b"X\x00: y", LENGTH), BODY),
    "two hosts": ((AUTH, b"Host: c", LENGTH), BODY),
    "two types": ((AUTH, b"Content-Type: application/json", LENGTH), BODY),
    "two keys": ((AUTH, b"Idempotency-Key: a", b"Idempotency-Key: b", LENGTH), BODY),
    "a long header": ((AUTH, b"X: " + b"x" * 70_000, LENGTH), BODY),
    "many headers": ((AUTH, *(b"X-%d: y" % number for number in range(10_000)), LENGTH), BODY),
    "a chunk that is no number": ((AUTH, b"Transfer-Encoding: chunked"), b"zz\r\nx\r\n0\r\n\r\n"),
    "a negative chunk": ((AUTH, b"Transfer-Encoding: chunked"), b"-1\r\nx\r\n0\r\n\r\n"),
    "a chunk in 0x": ((AUTH, b"Transfer-Encoding: chunked"), b"0x1\r\n1\r\n0\r\n\r\n"),
    "a chunk that is too long": ((AUTH, b"Transfer-Encoding: chunked"), b"2\r\n123\r\n0\r\n\r\n"),
    "a chunk of very many bytes": ((AUTH, b"Transfer-Encoding: chunked"), b"f" * 30 + b"\r\n1\r\n0\r\n\r\n"),
    "a bare line feed in chunks": ((AUTH, b"Transfer-Encoding: chunked"), b"1\n1\n0\n\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ambiguous_is_refused(service, name):
    lines, body = REFUSED[name]
    before = len(list(service.tasks.iterdir()))
    found = ask(service.connect(), request(service, *lines, body=body))
    assert [status for status, _ in found] == [400], found  # once: what follows is not read
    assert error_of(found[0][1]) == "Malformed"
    assert len(list(service.tasks.iterdir())) == before


LINES = {
    "absolute form": (b"GET http://b/v1/queue HTTP/1.1", 400),
    "absolute form of an open path": (b"GET http://b/healthz HTTP/1.1", 400),
    "authority form": (b"CONNECT b:80 HTTP/1.1", 400),
    "asterisk": (b"OPTIONS * HTTP/1.1", 400),
    "no path": (b"GET v1/queue HTTP/1.1", 400),
    "raw NUL": (b"GET /v1/queue\x00 HTTP/1.1", 400),
    "NUL": (b"GET /v1/tasks/%00 HTTP/1.1", 400),
    "NUL behind an open path": (b"GET /healthz%00 HTTP/1.1", 400),
    "line feed": (b"GET /v1/tasks/%0d%0aX: HTTP/1.1", 400),
    "two spaces": (b"GET  /v1/queue HTTP/1.1", 400),
    "a tab": (b"GET\t/v1/queue HTTP/1.1", 400),
    "no version": (b"GET /v1/queue", 400),
    "HTTP/2": (b"PRI * HTTP/2.0", 400),
    "HTTP/9.9": (b"GET /v1/queue HTTP/9.9", 400),
    "another protocol": (b"GET /v1/queue HTTPS/1.1", 400),
    "a letter beyond ASCII": ("GET /v1/\xfc HTTP/1.1".encode(), 400),
    "a very long path": (b"GET /" + b"x" * 70_000 + b" HTTP/1.1", 400),
}


@pytest.mark.parametrize("name", LINES)
def test_strange_request_lines(service, name):
    line, status = LINES[name]
    found = ask(service.connect(), request(service, AUTH, line=line))
    assert [found_status for found_status, _ in found] == [status]


PATHS = {
    b"/v1/../healthz": 404,
    b"/v1/%2e%2e/healthz": 404,
    b"//healthz": 404,
    b"//b/healthz": 404,
    b"/healthz/": 404,
    b"/HEALTHZ": 404,
    b"/healthz;x": 404,
    b"/v1/tasks/..%2f..%2fhealthz": 404,
    b"/v1/devices/%2e%2e%2f": 404,
    b"/v1/tasks/' OR 1=1": 400,
    b"/v1/tasks/%27%20OR%201=1": 404,
    b"/v1/tasks/%f0%9f%92%a9": 404,
    b"/v1/tasks/%ff": 404,
    b"/v1/tasks/" + b"x" * 101: 422,
}


@pytest.mark.parametrize("path", PATHS)
def test_strange_paths_lead_nowhere(service, path):
    """With a credential nothing is found there, and without one the answer is 401: no path is open but three."""
    found = ask(service.connect(), request(service, AUTH, line=b"GET " + path + b" HTTP/1.1"))
    assert found[0][0] == PATHS[path]
    found = ask(service.connect(), request(service, line=b"GET " + path + b" HTTP/1.1"))
    assert found[0][0] == (400 if PATHS[path] == 400 else 401)


@pytest.mark.parametrize("method", [b"TRACE", b"PATCH", b"PROPFIND", b"x"])
def test_other_methods(service, method):
    found = ask(service.connect(), request(service, AUTH, line=method + b" /v1/queue HTTP/1.1", body=b""))
    assert found[0][0] == 405


def test_what_has_one_reading_is_accepted(service):
    same = b"Content-Length: %d, %d" % (len(BODY), len(BODY))  # RFC 9110, 8.6: equal lengths are one
    for lines, body in (
        ((AUTH, LENGTH), BODY),
        ((AUTH, same), BODY),
        ((AUTH, b"Transfer-Encoding: CHUNKED"), CHUNKED),
        ((b"aUTHORIZATION:bEARER   TOKEN  ", LENGTH), BODY),
    ):
        found = ask(service.connect(), request(service, *lines, body=body), hang_up=False)
        assert [status for status, _ in found] == [201, 200], found


def test_requests_in_a_row_are_answered_in_order(service):
    first = request(service, AUTH, LENGTH, body=BODY).removesuffix(SECOND)
    found = ask(service.connect(), first + first + SECOND, hang_up=False)
    assert [status for status, _ in found] == [201, 201, 200]


def test_the_body_of_a_refused_request_is_no_request(service):
    hidden = b"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n"
    refused = b"POST /v1/tasks HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n" % len(hidden)
    found = ask(service.connect(), refused + hidden + SECOND)
    assert [status for status, _ in found] == [401, 200]


def test_a_request_that_ends_too_early_does_nothing(service):
    before = len(list(service.tasks.iterdir()))
    whole = request(service, AUTH, b"Content-Length: %d" % (len(BODY) + 1), body=BODY).removesuffix(SECOND)
    assert [status for status, _ in ask(service.connect(), whole)] in ([], [400], [408])
    assert len(list(service.tasks.iterdir())) == before


def test_an_upgrade_is_not_made(service):
    upgrade = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: x", b"Sec-WebSocket-Version: 13")
    for target, status in ((b"/v1/events", 401), (b"/healthz", 200)):
        found = ask(service.connect(), request(service, *upgrade, line=b"GET " + target + b" HTTP/1.1"))
        assert found[0][0] == status


def test_http_1_0_has_no_chunks(service):
    old = b"POST /v1/tasks HTTP/1.0"
    found = ask(service.connect(), request(service, AUTH, b"Transfer-Encoding: chunked", line=old, body=CHUNKED))
    assert [status for status, _ in found] == [400]
    with service.connect() as connection:
        connection.sendall(request(service, AUTH, LENGTH, line=old, body=BODY).removesuffix(SECOND))
        assert [status for status, _ in answers(connection)] == [201]
