"""A request to terminate is handled as Ctrl-C is: StreamFlow then closes its deployments, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import threading


def end_on_sigterm() -> None:
    """To be called by a connector as it is deployed; StreamFlow itself would die of SIGTERM at once."""
    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os.kill, os.getpid(), signal.SIGINT)
