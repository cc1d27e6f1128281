"""What a broker is shown: a munge credential if $QLOOM_BROKER_MUNGE is set, as for qloom's own client, or a token."""

from __future__ import annotations

import asyncio
import hashlib
import os

from streamflow.core.exception import WorkflowExecutionException

from qloom_streamflow.home import token

MUNGE = "QLOOM_BROKER_MUNGE"  # munged's socket, or 1 for the usual one


async def authorization(method: str, target: str, content: bytes) -> str | None:
    """The header of one request; None where the broker's socket tells who asks."""
    if munge := os.environ.get(MUNGE):
        # One for each request: it is worth nothing for another one, nor the second time.
        said = f"{method}\n{target}\n{hashlib.sha256(content).hexdigest()}"
        return f"MUNGE {await _encoded(said, munge if '/' in munge else None)}"
    own = token()
    return f"Bearer {own}" if own else None


async def _encoded(text: str, socket: str | None) -> str:
    options = [f"--socket={socket}"] if socket else []
    try:
        process = await asyncio.create_subprocess_exec(
            "munge",
            *options,
            f"--string={text}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        raise WorkflowExecutionException(f"munge is not installed here; install it, or unset ${MUNGE}") from None
    credential, told = await process.communicate()
    if process.returncode != 0:
        raise WorkflowExecutionException(f"{told.decode(errors='replace').strip()} (is munged running?)")
    return credential.decode().strip()
