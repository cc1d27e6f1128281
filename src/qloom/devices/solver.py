"""The process in which emulated devices compute: `python -m qloom.devices.solver`.

One frame in, one frame out, never a pickle. It ends when its standard input does, so that a broker that was killed
leaves nothing behind. The memory of the process and the CPU time of each task are limited.
"""

from __future__ import annotations

import json
from typing import Any

from qloom.devices.lend import allow_cpu, answer_frames, frame
from qloom.devices.solvers import check_limit, solve
from qloom.errors import QloomError


def answer(request: dict[str, Any], body: bytes) -> bytes:
    """The frame that is sent back: an answer, or `error` with its kind and a line of text."""
    head = {"n": request["n"]}
    try:
        params = request["params"]
        allow_cpu(params["cpu_s"])
        asked = {**params["request"], "body": json.loads(body)}
        text = json.dumps(solve(params["solver"], asked), allow_nan=False)
        check_limit(asked, "max_answer_bytes", len(text), "the answer has {} bytes")
        return frame(head, text)
    except QloomError as error:
        return frame({**head, "error": {"type": type(error).__name__, "message": error.message, "hint": error.hint}})
    except MemoryError:
        message = "the solver ran out of memory: the task needs more than the device's memory_mib"
        return frame({**head, "error": {"type": "QuantumFailed", "message": message}})
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        return frame({**head, "error": {"type": "QuantumFailed", "message": f"the solver failed: {text}"}})


if __name__ == "__main__":
    answer_frames(answer)
