"""The process in which emulated devices compute: `python -m qloom.broker.devices.solver`.

One JSON line in, one JSON line out, never a pickle. It ends when its standard input does, so that a broker that
was killed leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from qloom.broker.devices.solvers import solve
from qloom.errors import QloomError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What is sent back: `answer`, or `error` with its kind and a line of text."""
    try:
        found = solve(request["params"]["solver"], request["params"]["request"])
        return {"n": request["n"], "answer": found}
    except QloomError as error:
        return {
            "n": request["n"],
            "error": {"type": type(error).__name__, "message": error.message, "hint": error.hint},
        }
    except MemoryError:
        return {"n": request["n"], "error": {"type": "QuantumFailed", "message": "the solver ran out of memory"}}
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        return {"n": request["n"], "error": {"type": "QuantumFailed", "message": f"the solver failed: {text}"}}


def lines() -> Iterator[str]:
    """Lines of standard input, read beside the work: when it ends, so does this process, at once."""
    waiting: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield waiting.get()


def main() -> None:
    """Answer until standard input ends. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in lines():
        out.write(json.dumps(answer(json.loads(line)), allow_nan=False) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
