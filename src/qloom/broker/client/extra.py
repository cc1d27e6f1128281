"""What a broker and its clients need beyond qloom's core."""

from __future__ import annotations

from importlib.util import find_spec

from qloom.errors import InputError

MODULES = ("fastapi", "httpx", "prometheus_client", "uvicorn")


def require_extra(otherwise: str = "") -> None:
    """Say which of them is not installed, and what brings it, or how to do without."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise InputError(f"{', '.join(missing)}: not installed", hint=f'pip install "qloom[broker]"{otherwise}')
