"""What Slurm knows of the broker's callers: their accounts, and the shares of QPUs that their jobs hold."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qloom.broker.problems import Forbidden, Unavailable
from qloom.broker.requests import Caller
from qloom.errors import Refused
from qloom.slurm.commands import NO_ANSWER, call_program

LEAST_WEIGHT = 0.001  # of an account whose fairshare is 0
SHOWN = "JobID:|,UserID:|,State:|,tres-alloc:|,HetJobID:|"
HOLD = ("RUNNING", "SUSPENDED")  # states in which a job keeps its shares
STARTING = ("PENDING", "CONFIGURING")  # also, for some seconds, a running job of a slurmctld that was killed
ENDED = (
    *("COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"),
    *("PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"),
)


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


@dataclass(frozen=True)
class JobHolding:
    """What a job holds, or one component of a het job."""

    job: str  # the whole job; of an array, the element
    id: str  # the component's own number, or the job's
    uid: int
    state: str
    tres: str

    def shares(self, gres: str, device: str, *, alone: bool) -> int:
        """Shares of a device: its name is the type of the gres. Those without a type are the only device's."""
        counts = {name: int(count) for name, count in re.findall(r"(?:^|,)gres/([^=,]+)=(\d+)", self.tres)}
        typed = gres if ":" in gres else f"{gres}:{device}"
        if typed in counts or not (alone or device == gres) or ":" in gres:
            return counts.get(typed, 0)
        of_others = sum(count for name, count in counts.items() if name.startswith(f"{gres}:"))
        return max(0, counts.get(gres, 0) - of_others)


def read_holdings(text: str) -> list[JobHolding]:
    """What `squeue` prints if it is asked for `SHOWN`.

    Only fields that no user can write are read: names and comments of jobs could say anything.
    """
    found = []
    for line in text.splitlines():
        job, uid, state, tres, leader, *_ = f"{line}|||||".split("|")
        if uid.isdigit():
            whole = leader if leader.isdigit() and int(leader) else job
            found.append(JobHolding(whole, job, int(uid), state, tres))
    return found


@dataclass(frozen=True)
class SlurmSite:
    """Slurm's commands, each with a limit on its time."""

    gres: str = "qpu"
    timeout_s: float = 10.0
    check_s: float = 30.0  # how often it is asked whether jobs still hold what their sessions use
    confirm_s: float = 60.0  # how long a share must be missing until its session is closed, unless its job has ended
    environment: Mapping[str, str] | None = field(default=None, repr=False)

    async def accounts(self) -> dict[str, Account]:
        """All accounts with their members."""
        return read_accounts(await self._ask("sacctmgr", "-nP", "show", "assoc", "format=account,user,fairshare"))

    async def shares_of(self, who: Caller, job: str, device: str, *, alone: bool) -> tuple[str, int]:
        """The number of a running job of the caller, and how many shares it holds; raises if it has no such job.

        The number is Slurm's, not the caller's: a share must not count once for `7`, for `07` and for a component.
        """
        uid, asked = _uid_of(who), str(int(job))
        # Asked for the first element of an array, squeue lists all elements.
        own = [part for part in await self.holdings(asked) if part.uid == uid and asked in (part.job, part.id)]
        if not own:  # one that is not there looks like somebody else's
            raise Forbidden(f"user {who.user} has no Slurm job {job}")
        running = [part for part in own if part.state == "RUNNING"]
        if running:
            return running[0].job, self.shares(running, device, alone=alone)
        if all(part.state in STARTING for part in own):
            raise Unavailable(f"Slurm job {job} does not run yet: it is {own[0].state}", hint="try again")
        hint = "open the session inside the job"
        raise Refused(f"Slurm job {job} does not run: it is {own[0].state}", hint=hint)

    def has_ended(self, held: Sequence[JobHolding], device: str, *, alone: bool) -> bool:
        """Whether Slurm shows the end of what held shares of a device, be it a job or a component."""
        ended = [part for part in held if part.state in ENDED]
        return bool(ended) and (len(ended) == len(held) or self.shares(ended, device, alone=alone) > 0)

    def shares(self, held: Iterable[JobHolding], device: str, *, alone: bool) -> int:
        """How many shares of a device are among what is held; `alone` if the broker has no other device."""
        return sum(part.shares(self.gres, device, alone=alone) for part in held)

    async def share_differences(self, shares: Mapping[str, int]) -> list[str]:
        """Devices that offer another number of shares than Slurm counts; `shares` has all devices of the broker."""
        nodes = dict(
            line.split("|", 1) for line in (await self._ask("sinfo", "-h", "-N", "-o", "%N|%G")).splitlines()
        )
        found = []
        for device, offered in shares.items():
            names = [self.gres if ":" in self.gres else f"{self.gres}:{device}"]
            names += [self.gres] if ":" not in self.gres and (len(shares) == 1 or device == self.gres) else []
            counts = [(count, name) for name in names if (count := _gres_count(nodes.values(), name))]
            counted, name = counts[0] if counts else (0, names[-1])
            if counted != offered:
                found.append(f"QPU {device} offers {offered} shares, and Slurm counts {counted} of gres/{name}")
        return found

    async def holdings(self, *jobs: str) -> list[JobHolding]:
        """What jobs hold, by one call for all of them; those that Slurm has forgotten are left out."""
        return read_holdings(await self._ask("squeue", "-h", "-t", "all", "-j", ",".join(jobs), "-O", SHOWN))

    async def _ask(self, *command: str) -> str:
        try:
            answer = await call_program(*command, timeout_s=self.timeout_s, environment=self.environment)
        except OSError as error:
            raise Unavailable(f"Slurm's {command[0]} cannot be run: {error.strerror}") from None
        if answer.code == NO_ANSWER:
            raise Unavailable(f"Slurm's {command[0]} does not answer", hint="try again")
        if answer.code != 0 and "Invalid job id" not in answer.stderr:
            first = next(iter(answer.stderr.strip().splitlines()), f"exit code {answer.code}")
            raise Unavailable(f"Slurm's {command[0]} does not answer: {first}", hint="try again")
        return answer.stdout


def _gres_count(nodes: Iterable[str], name: str) -> int:
    """How many of a gres nodes have together, from `sinfo`'s `qpu:helmi:8(S:0),other:2`."""
    wanted = re.compile(rf"(?:^|,){re.escape(name)}:(\d+)(?=[,(]|$)")
    return sum(int(count) for gres in nodes for count in wanted.findall(gres))


def _uid_of(who: Caller) -> int | None:
    """Of a caller with a token it is that of the user of that name."""
    if who.uid is not None:
        return who.uid
    try:
        return pwd.getpwnam(who.user).pw_uid
    except KeyError:
        return None
