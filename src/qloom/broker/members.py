"""Who is in which project, as the config says and as Slurm does; and what SIGHUP changes while the broker runs.

Slurm is asked again now and then. The tokens need no signal: their file is read again whenever it changes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict

from pydantic import BaseModel

from qloom.broker.auth.callers import Authenticator
from qloom.broker.config import BrokerConfig
from qloom.broker.problems import Unavailable
from qloom.broker.queue.policies import Project
from qloom.broker.service import BrokerService
from qloom.broker.slurm import Account, SlurmSite
from qloom.broker.store.database import Database
from qloom.errors import QloomError

LOG = logging.getLogger("qloom.broker")
KEPT = "slurm_accounts"  # as Slurm last reported them: a broker that starts while Slurm is away goes on with those
AT_ONCE = ("projects", "auth.admins", "limits.max_jobs", "limits.session_idle_s", "limits.keep_results_s")


def kept_accounts(database: Database) -> dict[str, Account]:
    """Slurm's accounts as last seen."""
    kept = json.loads(database.get(KEPT, "{}"))
    return {name: Account(entry["weight"], tuple(entry["members"])) for name, entry in kept.items()}


def projects_of(config: BrokerConfig, accounts: Mapping[str, Account]) -> list[Project]:
    """Weights and limits, as the queue core knows them."""
    return [
        Project(
            name,
            part.weight,
            part.budget_s,
            part.max_tasks,
            part.max_sessions,
            part.max_whole,
            part.max_priority,
            config.limits.whole_idle_s if part.whole_idle_s is None else part.whole_idle_s,
            config.limits.whole_hold_s if part.whole_hold_s is None else part.whole_hold_s,
        )
        for name, part in config.projects_with(accounts).items()
    ]


class Members:
    """Keeps projects, members and administrators in step with the config and with Slurm's associations."""

    def __init__(
        self, config: BrokerConfig, broker: BrokerService, auth: Authenticator, site: SlurmSite | None = None
    ) -> None:
        self._config, self._broker, self._auth, self._site = config, broker, auth, site
        self._accounts = kept_accounts(broker.database) if site is not None else {}
        self._apply()

    def replace(self, config: BrokerConfig) -> None:
        """Apply a config that was read again: streams and waits of former members end."""
        self._config = config
        self._apply()

    async def refresh(self) -> None:
        """Ask Slurm; what it said last goes on to hold if it does not answer."""
        if self._site is None:
            return
        try:
            self._accounts = await self._site.accounts()
        except Unavailable as error:
            LOG.warning("the projects stay as they were: %s", error.message)
            return
        self._apply()
        kept = {name: asdict(account) for name, account in self._accounts.items()}
        self._broker.database.put(KEPT, json.dumps(kept))

    async def keep(self) -> None:
        """Ask again and again."""
        while self._site is not None:
            await asyncio.sleep(self._config.slurm.refresh_s)
            await self.refresh()

    def _apply(self) -> None:
        projects = self._config.projects_with(self._accounts)
        members = {name: part.members for name, part in projects.items()}
        self._auth.replace_members(members, self._config.auth.admins)
        self._broker.core.ledger.know(projects_of(self._config, self._accounts))


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
