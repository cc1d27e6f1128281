"""Where qloom keeps things, as qloom itself finds them: the broker's address, and a user's token."""

from __future__ import annotations

import os
from pathlib import Path

from streamflow.core.exception import WorkflowExecutionException


def broker_address(given: str | None) -> str:
    """An address as `unix:PATH` or a URL: $QLOOM_BROKER, or the socket of this user's own broker, unless given."""
    address = given or os.environ.get("QLOOM_BROKER") or str(_own_socket())
    if address.startswith("/"):
        return f"unix:{address}"
    return address if address.startswith("unix:") or "://" in address else f"http://{address}"


def token() -> str | None:
    """$QLOOM_BROKER_TOKEN, or the content of $QLOOM_BROKER_TOKEN_FILE, or of `token` in qloom's home."""
    if given := os.environ.get("QLOOM_BROKER_TOKEN"):
        return given.strip()
    named = os.environ.get("QLOOM_BROKER_TOKEN_FILE")
    path = Path(named or _home() / "token")
    try:
        return path.read_text().strip() or None
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not named:
            return None
        raise WorkflowExecutionException(f"cannot read the token in {path}: {error.strerror}") from None


def _own_socket() -> Path:
    directory = os.environ.get("XDG_RUNTIME_DIR")
    return Path(directory) / "qloom-broker.sock" if directory else _home() / "broker" / "broker.sock"


def _home() -> Path:
    if given := os.environ.get("QLOOM_HOME"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "qloom"
