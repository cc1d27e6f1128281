"""The real service, which on SIGUSR1 writes how many objects it has to `objects`, beside its config.

python -m tests.security.counted broker.toml
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import signal
import sys
from pathlib import Path

from qloom.broker.config import read_config
from qloom.broker.serve import serve
from tests.broker.service import DirectoryDevice

COME_AND_GO = (
    asyncio.TimerHandle,
    contextvars.Context,
)  # cancelled timers are forgotten later


def write_count(number: int, frame: object) -> None:
    """Made at once or not at all, so that whoever waits for the file reads a whole number."""
    gc.collect()
    count = sum(not isinstance(one, COME_AND_GO) for one in gc.get_objects())
    made = Path(sys.argv[1]).with_name("objects.new")
    made.write_text(str(count))
    os.rename(made, made.with_suffix(""))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGUSR1, write_count)
    serve(read_config(Path(sys.argv[1])), DirectoryDevice)
