"""What goes over the pipes of a child process: a line of JSON, and behind it as many bytes as the line says.

The bytes are JSON too, of a payload or an answer. They are passed on as they are: whoever forwards them need not read
them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

LONGEST = 256 * 2**20  # bytes of a line, or behind it

Answer = Callable[[dict[str, Any], bytes], bytes]  # the frame to send for a request and what came behind it


def frame(head: dict[str, Any], attached: str | bytes | None = None) -> bytes:
    """As it is sent."""
    if attached is None:
        return json.dumps(head, allow_nan=False).encode() + b"\n"
    data = attached.encode() if isinstance(attached, str) else attached
    return json.dumps({**head, "bytes": len(data)}, allow_nan=False).encode() + b"\n" + data


def attached_bytes(head: Any) -> int | None:
    """How many bytes follow a line; None if none do. Raises `ValueError` for nonsense."""
    if not isinstance(head, dict):
        raise ValueError("a frame's head is a table")
    count = head.pop("bytes", None)
    if count is not None and not (isinstance(count, int) and 0 <= count <= LONGEST):
        raise ValueError("a frame with a wrong length")
    return count


def answer_frames(answer: Answer) -> None:
    """Answer one frame after the other until standard input ends. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    waiting: SimpleQueue[tuple[dict[str, Any], bytes]] = SimpleQueue()

    def read() -> None:
        """Beside the work: when standard input ends, so does this process, at once."""
        try:
            while line := sys.stdin.buffer.readline():
                head = json.loads(line)
                waiting.put((head, sys.stdin.buffer.read(attached_bytes(head) or 0)))
        finally:
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        out.write(answer(*waiting.get()))
        out.flush()
