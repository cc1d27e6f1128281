"""What a service can answer besides the errors that everybody knows, each with its HTTP status; and what it needs.

QloomError
├── InputError
│   ├── NotFound            404: there is none, or it is somebody else's
│   ├── Refused
│   │   ├── Conflict        409: a key that was used for something else
│   │   ├── Forbidden       403: known, but not allowed
│   │   └── TooManyRequests 429
│   ├── Malformed           400: a request that two programs could read differently
│   ├── TooLarge            413
│   ├── TooSlow             408: the rest of a request did not come in time
│   └── Unauthenticated     401: no credential, or a wrong one
├── StoreFull               507: it could not be made durable, so it was not accepted
├── Unavailable             503: something that the broker needs does not answer now
└── NoBroker                no broker answers (clients only)
"""

from __future__ import annotations

from importlib.util import find_spec

from qloom.errors import InputError, PayloadError, QloomError, QuantumFailed, Refused

MODULES = ("fastapi", "httpx", "prometheus_client", "uvicorn")


class NotFound(InputError):
    """There is none of that name, or it belongs to somebody else: the answer does not say which."""


class Forbidden(Refused):
    """Who asks is known, but may not do this."""


class Conflict(Refused):
    """An idempotency key that was used for something else."""


class TooManyRequests(Refused):
    """A user asks more often than the broker's limit."""


class TooLarge(InputError):
    """A request that is larger than the broker's limit."""


class Malformed(InputError):
    """A request that two programs could read differently."""


class TooSlow(InputError):
    """A request whose rest did not come in time."""


class Unauthenticated(InputError):
    """No credential, or one that is wrong, old or was used before."""


class StoreFull(QloomError):
    """Something could not be made durable, so it was not accepted."""


class Unavailable(QloomError):
    """Something that the broker needs does not answer now."""


class NoBroker(QloomError):
    """No broker answers at this address."""


STATUS: dict[type[QloomError], int] = {  # the most particular first
    NotFound: 404,
    Forbidden: 403,
    Conflict: 409,
    TooManyRequests: 429,
    TooLarge: 413,
    TooSlow: 408,
    Malformed: 400,
    Unauthenticated: 401,
    StoreFull: 507,
    Unavailable: 503,
    Refused: 409,
    PayloadError: 422,
    InputError: 400,
    QuantumFailed: 502,
}
BY_NAME: dict[str, type[QloomError]] = {kind.__name__: kind for kind in STATUS}


def status_of(error: QloomError) -> int:
    """The HTTP status for an error."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def require_extra(otherwise: str = "") -> None:
    """Say which of them is not installed, and what brings it, or how to do without."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise InputError(f"{', '.join(missing)}: not installed", hint=f'pip install "qloom[broker]"{otherwise}')
