"""Who is in which project: as the config says, and as Slurm does, which is asked again now and then."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict

from qloom.broker.auth import Authenticator
from qloom.broker.config import BrokerConfig
from qloom.broker.ledger import Project
from qloom.broker.problems import Unavailable
from qloom.broker.shell import Broker
from qloom.broker.slurm import Account, SlurmSite
from qloom.broker.store import Store

LOG = logging.getLogger("qloom.broker")
KEPT = "slurm_accounts"  # as Slurm told them last: a broker that starts while Slurm is away goes on with those


def kept_accounts(store: Store) -> dict[str, Account]:
    """Slurm's accounts as they were last."""
    kept = json.loads(store.get(KEPT, "{}"))
    return {name: Account(entry["weight"], tuple(entry["members"])) for name, entry in kept.items()}


def projects_of(config: BrokerConfig, accounts: Mapping[str, Account]) -> list[Project]:
    """Weights and limits, as the queue core knows them."""
    return [
        Project(name, part.weight, part.budget_s, part.max_tasks, part.max_sessions)
        for name, part in config.projects_with(accounts).items()
    ]


class Members:
    """Keeps the projects in step with Slurm's associations."""

    def __init__(self, config: BrokerConfig, broker: Broker, auth: Authenticator, site: SlurmSite) -> None:
        self._config, self._broker, self._auth, self._site = config, broker, auth, site
        self._take(kept_accounts(broker.store))

    async def refresh(self) -> None:
        """Ask Slurm; what it said last goes on to hold if it does not answer."""
        try:
            accounts = await self._site.accounts()
        except Unavailable as error:
            LOG.warning("the projects stay as they were: %s", error.message)
            return
        self._take(accounts)
        self._broker.store.put(KEPT, json.dumps({name: asdict(account) for name, account in accounts.items()}))

    async def keep(self) -> None:
        """Ask again and again."""
        while True:
            await asyncio.sleep(self._config.slurm.refresh_s)
            await self.refresh()

    def _take(self, accounts: Mapping[str, Account]) -> None:
        self._auth.members = {name: part.members for name, part in self._config.projects_with(accounts).items()}
        self._broker.core.ledger.know(projects_of(self._config, accounts))
