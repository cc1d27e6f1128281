"""`python -m qloom.dashboard.replay RUN`: what if? Reads a change from standard input and prints the answer as JSON.

The dashboard starts this as a process with a deadline: a program that is replayed is the user's, and may do anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from qloom.dashboard.describe import look
from qloom.errors import InputError, QloomError
from qloom.journal import home
from qloom.lab.advisor.whatif import Change, RecordedRun, Replay
from qloom.strategies import STRATEGIES
from qloom.views.bars import LiveBars

WITHIN_S = 30.0
NUMBERS = {"nodes": int, "jobs": int, "quantum": float, "wait_s": float}


def answer(run: str, content: dict[str, Any]) -> dict[str, Any]:
    """The run as it was and changed, what both cost, and what every strategy would cost then."""
    recorded = RecordedRun(home.find_run(run))
    change = change_from(content)
    return {
        "look": look(),
        "strategies": list(STRATEGIES.built_in),
        "wait_s": recorded.wait_s,
        "as_was": _shown(recorded.replay(Change())),
        "changed": _shown(recorded.replay(change)),
        "table": recorded.strategies(change),
    }


def change_from(content: dict[str, Any]) -> Change:
    """A change as the page sends it."""
    values: dict[str, Any] = {}
    if content.get("strategy") is not None:
        values["strategy"] = str(content["strategy"])
    for name, kind in NUMBERS.items():
        value = content.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name} is a number")
        values[name] = kind(value)
    return Change(**values)


def _shown(replay: Replay) -> dict[str, Any]:
    bars = LiveBars(replay.run)
    bars.catch_up()
    return {
        "strategy": replay.strategy,
        "nodes": replay.nodes,
        "jobs": replay.jobs,
        "end_us": replay.run.now_us,
        "figures": replay.figures,
        "rows": [row.as_dict() for row in bars.rows()],
        "bars": [bar.as_list() for bar in bars.bars()],
    }


async def replay_apart(run: str, content: dict[str, Any]) -> dict[str, Any]:
    """The answer of a separate process; raises if it is refused or takes too long."""
    command = (sys.executable, "-P", "-m", "qloom.dashboard.replay", run)  # -P: others may write where we started
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            output, _ = await process.communicate(json.dumps(content).encode())
    except TimeoutError:
        raise InputError(f"replaying {run} takes more than {WITHIN_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        found = json.loads(output)
    except ValueError:
        raise InputError(f"{run} cannot be replayed: its program ended the process") from None
    if "error" in found:
        raise InputError(str(found["error"]), hint=found.get("hint"))
    return dict(found)


def main() -> None:
    """Answer one question."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a module may print when it is imported
            found = answer(sys.argv[1], json.load(sys.stdin))
    except QloomError as error:
        found = {"error": error.message, "hint": error.hint}
    except Exception as error:
        found = {"error": f"the program raised {type(error).__name__}: {error}"}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
