"""Requests that two programs could read differently are refused, so that no proxy sees another request than we do.

h11 refuses most of them itself; here is what it lets through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from qloom.broker.problems import Malformed

ONCE = (
    b"authorization",
    b"content-length",
    b"content-type",
    b"host",
    b"idempotency-key",
    b"last-event-id",
    b"transfer-encoding",
)
HEAD_BYTES = 16384  # h11 has the same limit, but only while the header is incomplete
AMBIGUOUS = re.compile(rb"\n[ \t]|(?<!\r)\n|\r(?!\n)")  # a folded line, or half an end of line
HEAD_END = re.compile(rb"\r?\n\r?\n")
HEX_OF_CONTROL = re.compile(rb"%(?:[01][0-9a-f]|7f)", re.IGNORECASE)


def check_head(head: bytes) -> None:
    """Refuse header lines that other programs may divide differently; `head` begins with a request line."""
    end = HEAD_END.search(head)
    lines = head[: end.end()] if end else head.removesuffix(b"\r")
    if len(lines) > HEAD_BYTES:
        raise Malformed(f"the header of a request has {HEAD_BYTES} bytes at most")
    if AMBIGUOUS.search(lines):
        raise Malformed("a header line is folded or does not end with CRLF")


def check_request(target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]], once: Iterable[bytes]) -> None:
    """Refuse a request whose target, length or sender can be read in two ways."""
    seen: dict[bytes, bytes] = {}
    single = (*ONCE, *once)
    for name, value in headers:
        if name in seen and name in single:
            raise Malformed(f"two {name.decode('latin-1')} headers", hint="send one")
        seen[name] = value
    if version not in ("1.0", "1.1"):
        raise Malformed(f"HTTP/{version} is not spoken here", hint="use HTTP/1.1")
    if b"transfer-encoding" in seen and (b"content-length" in seen or version == "1.0"):
        raise Malformed("both a length and a transfer encoding, or the latter with HTTP/1.0", hint="send a length")
    if not target.startswith(b"/"):
        raise Malformed("the target of a request is a path", hint="such as /v1/tasks")
    if HEX_OF_CONTROL.search(target):
        raise Malformed("a path has no control characters")
