"""What Slurm knows of the broker's callers: their accounts, and the shares of QPUs that their jobs hold."""

from __future__ import annotations

import asyncio
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from qloom.broker.problems import Forbidden, Unavailable
from qloom.broker.records import Caller
from qloom.errors import Refused

LEAST_WEIGHT = 0.001  # of an account whose fairshare is 0


@dataclass(frozen=True)
class Account:
    """An account of Slurm: to the broker, a project."""

    weight: float = 1.0
    members: tuple[str, ...] = ()


def read_accounts(text: str) -> dict[str, Account]:
    """What `sacctmgr -nP show assoc format=account,user,fairshare` prints; the account's own line has no user."""
    weights: dict[str, float] = {}
    members: dict[str, dict[str, None]] = {}
    for line in text.splitlines():
        account, _, rest = line.partition("|")
        user, _, share = rest.partition("|")
        if not account:
            continue
        known = members.setdefault(account, {})
        if user:
            known[user] = None
        elif share.isdigit():
            weights[account] = max(float(share), LEAST_WEIGHT)
    return {name: Account(weights.get(name, 1.0), tuple(users)) for name, users in members.items()}


def read_held(text: str, gres: str) -> list[tuple[int, str, int]]:
    """User id, state and count of a gres, of each component of a job, as `squeue` was asked for them.

    Only fields that no user can write are read: names and comments of jobs could say anything.
    """
    rows = []
    for line in text.splitlines():
        _job, uid, state, tres, *_ = f"{line}||||".split("|")
        count = re.search(rf"(?:^|,)gres/{re.escape(gres)}=(\d+)", tres)
        if uid.isdigit():
            rows.append((int(uid), state, int(count[1]) if count else 0))
    return rows


@dataclass(frozen=True)
class SlurmSite:
    """Slurm's commands, each with a limit on its time."""

    gres: str = "qpu"
    timeout_s: float = 10.0
    environment: Mapping[str, str] | None = field(default=None, repr=False)

    async def accounts(self) -> dict[str, Account]:
        """All accounts with their members."""
        return read_accounts(await self._ask("sacctmgr", "-nP", "show", "assoc", "format=account,user,fairshare"))

    async def shares_of(self, who: Caller, job: str) -> int:
        """How many shares a running job of the caller holds; raises if it is not theirs, or does not run."""
        text = await self._ask("squeue", "-h", "-t", "all", "-j", job, "-O", "JobID:|,UserID:|,State:|,tres-alloc:|")
        rows, uid = read_held(text, self.gres), _uid_of(who)
        if not any(owner == uid for owner, _, _ in rows):  # one that is not there looks like somebody else's
            raise Forbidden(f"user {who.user} has no Slurm job {job}")
        running = [count for owner, state, count in rows if owner == uid and state == "RUNNING"]
        if not running:
            raise Refused(f"Slurm job {job} does not run: it is {rows[0][1]}", hint="open the session inside the job")
        return sum(running)

    async def _ask(self, *command: str) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self.environment,
            )
        except OSError as error:
            raise Unavailable(f"Slurm's {command[0]} cannot be run: {error.strerror}") from None
        try:
            out, said = await asyncio.wait_for(process.communicate(), self.timeout_s)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise Unavailable(f"Slurm's {command[0]} does not answer", hint="try again") from None
        complaint = said.decode(errors="replace").strip()
        if process.returncode != 0 and "Invalid job id" not in complaint:
            first = complaint.splitlines()[0] if complaint else f"exit code {process.returncode}"
            raise Unavailable(f"Slurm's {command[0]} does not answer: {first}", hint="try again")
        return out.decode(errors="replace")


def _uid_of(who: Caller) -> int | None:
    """Of a caller with a token it is that of the user of that name."""
    if who.uid is not None:
        return who.uid
    try:
        return pwd.getpwnam(who.user).pw_uid
    except KeyError:
        return None
