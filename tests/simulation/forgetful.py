"""Schedules with a broker that forgets a task when it restarts; prints what each that is stuck says.

    python -m tests.simulation.forgetful 60

A process of its own: what is stuck leaves coroutines behind that nobody will ever await.
"""

from __future__ import annotations

import sys
from typing import Any

from qloom.broker.queue.core import QueueCore
from qloom.errors import Deadlock
from tests.simulation import disasters

restore = QueueCore.restore


def forget_one(core: Any, sessions: Any, tasks: Any, now_us: int = 0) -> None:
    """Restore all tasks but the first that was queued."""
    queued = [task for task in tasks if task.state == "queued"]
    restore(core, sessions, [task for task in tasks if task not in queued[:1]], now_us)


def main(count: int) -> None:
    """Run so many schedules."""
    QueueCore.restore = forget_one  # type: ignore[method-assign]
    for seed in range(count):
        try:
            disasters.run(disasters.draw(seed))
        except Deadlock as error:
            print(error)


if __name__ == "__main__":
    main(int(sys.argv[1]))
