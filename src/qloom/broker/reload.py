"""What SIGHUP does: the config is read again, and what can change while the broker runs does.

The tokens need no signal: their file is read again whenever it changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pydantic import BaseModel

from qloom.broker.auth.members import Members
from qloom.broker.config import BrokerConfig
from qloom.broker.service import BrokerService
from qloom.errors import QloomError

LOG = logging.getLogger("qloom.broker")
AT_ONCE = ("projects", "auth.admins", "limits.max_jobs", "limits.session_idle_s", "limits.keep_results_s")


class Reload:
    """Reads the config again when it is called; a config that is wrong changes nothing."""

    def __init__(
        self, config: BrokerConfig, read: Callable[[], BrokerConfig], broker: BrokerService, members: Members
    ) -> None:
        self._started = self._applied = config
        self._read, self._broker, self._members = read, broker, members

    def __call__(self) -> None:
        """Apply what has changed, and say in the log what needs a restart."""
        try:
            config = self._read()
        except QloomError as error:
            LOG.error("the config was not read again, and nothing has changed: %s", error.message)
            return
        applied = [key for key in changes(self._applied, config) if key in AT_ONCE]
        waiting = [key for key in changes(self._started, config) if key not in AT_ONCE]
        self._applied = config
        self._members.replace(config)
        self._broker.core.ledger.max_jobs = config.limits.max_jobs
        self._broker.session_idle_s = config.limits.session_idle_s
        self._broker.keep_s = config.limits.keep_results_s
        LOG.info("the config was read again: %s", f"changed {', '.join(applied)}" if applied else "nothing to change")
        if waiting:
            LOG.warning("these changes need a restart: %s", ", ".join(waiting))


def changes(before: BaseModel, after: BaseModel, place: str = "") -> list[str]:
    """The keys whose values differ, such as `limits.burst`."""
    found: list[str] = []
    for key in type(before).model_fields:
        old, new = getattr(before, key), getattr(after, key)
        if isinstance(old, BaseModel) and isinstance(new, BaseModel):
            found += changes(old, new, f"{place}{key}.")
        elif old != new:
            found.append(f"{place}{key}")
    return found
