"""Sessions and tasks within the shares of QPUs that their Slurm jobs hold: required at the start, checked later."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from qloom.broker.clock import BrokerTime
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.problems import Unavailable
from qloom.broker.queue.core import QueueCore
from qloom.broker.registry import TaskRegistry
from qloom.broker.requests import Caller
from qloom.broker.slurm import HOLD, SlurmSite
from qloom.errors import Refused
from qloom.model import QpuHold

LOG = logging.getLogger("qloom.broker")
INSIDE = "open it inside the job"
SUBMIT_INSIDE = "submit it inside the job"
PREFIX = "slurm-"  # and its number: the name of a Slurm job here


class SlurmShares:
    """Refuses what a Slurm job holds no share for, and ends what it holds none for any more."""

    def __init__(
        self,
        site: SlurmSite,
        core: QueueCore,
        dispatcher: Dispatcher,
        registry: TaskRegistry,
        time: BrokerTime,
        *,
        only_device: bool,  # whether there is one device, so that shares of a QPU that is not named are its own
        of_tasks: bool,  # whether tasks outside a session need a share too
    ) -> None:
        self.site = site
        self._core, self._dispatcher, self._registry, self._time = core, dispatcher, registry, time
        self._alone, self._of_tasks = only_device, of_tasks
        self._missing = MissingShares(site.confirm_s)

    @staticmethod
    def job_name(slurm_job: str) -> str:
        """The name by which the broker knows a Slurm job."""
        return f"{PREFIX}{slurm_job}"

    async def of_session(self, who: Caller, slurm_job: str | None, device: str) -> tuple[str, int]:
        """The number of the caller's job, as Slurm has it, and how many shares of a device it holds."""
        if slurm_job is None:
            raise Refused("a session needs a Slurm job that holds a share of the QPU", hint=INSIDE)
        return await self.site.shares_of(who, slurm_job, device, alone=self._alone)

    def require_session(self, slurm_job: str, held: int, device: str, hold: QpuHold, own: str | None) -> str:
        """Refuse a session, `own` if it is known, beyond what its Slurm job holds; returns the job's name here."""
        job, sessions = self.job_name(slurm_job), self._registry.sessions.values()
        others = [one for one in sessions if (one.job, one.device) == (job, device) and one.id != own]
        wanted = sum(self._size(one.device, one.hold) for one in others) + self._size(device, hold)
        if wanted > held:
            holds = f"Slurm job {slurm_job} holds {held} shares of QPU {device}"
            raise Refused(f"{holds}, and its sessions here would hold {wanted}")
        return job

    async def require_task(self, who: Caller, slurm_job: str | None, device: str) -> str:
        """Refuse a task of a caller whose Slurm job holds no share of a device; returns the job's name here."""
        if slurm_job is None:
            raise Refused("a task needs a Slurm job that holds a share of the QPU", hint=SUBMIT_INSIDE)
        slurm_job, held = await self.site.shares_of(who, slurm_job, device, alone=self._alone)
        if held < 1:
            raise Refused(f"Slurm job {slurm_job} holds no share of QPU {device}", hint=SUBMIT_INSIDE)
        return self.job_name(slurm_job)

    def _size(self, device: str, hold: QpuHold) -> int:
        return self._core.shares(device) if hold is QpuHold.WHOLE else 1

    # Checking

    async def check(self) -> None:
        """Close sessions, and cancel queued tasks, whose Slurm job holds their share no longer."""
        registry, site = self._registry, self.site
        sessions = [(session, number) for session in registry.sessions.values() if (number := _number(session.job))]
        tasks = [
            (task, number)
            for task in registry.tasks.values()
            if self._of_tasks and task.session is None and (number := _number(task.job))
        ]
        if not (sessions or tasks):
            return
        try:
            parts = await site.holdings(*dict.fromkeys(number for _, number in (*sessions, *tasks)))
        except Unavailable as error:
            LOG.warning("sessions stay as they are: %s", error.message)
            self._missing.forget_all()
            return
        left: dict[tuple[str, str], int] = {}
        missing, over = [], []
        for session, number in sessions:
            place = number, session.device
            if registry.sessions.get(session.id) is not session or session.job != self.job_name(number):
                continue  # it was closed or moved meanwhile
            own = [part for part in parts if part.job == number]
            if place not in left:
                held = [part for part in own if part.state in HOLD]
                left[place] = site.shares(held, session.device, alone=self._alone)
            if left[place] > 0:
                left[place] -= left[place] if session.hold is QpuHold.WHOLE else 1
            elif site.has_ended(own, session.device, alone=self._alone):
                over.append(session.id)
            else:
                missing.append(session.id)
        for task, number in tasks:
            if registry.tasks.get(task.id) is not task or task.state != "queued" or _number(task.job) != number:
                continue  # it is past that, or was moved meanwhile
            own = [part for part in parts if part.job == number]
            if site.shares([part for part in own if part.state in HOLD], task.device, alone=self._alone) < 1:
                ended = site.has_ended(own, task.device, alone=self._alone)
                (over if ended else missing).append(task.id)
        for id in (*over, *self._missing.confirmed(missing, self._time.now_us())):
            self._end(id)

    def _end(self, id: str) -> None:
        """End a session or a queued task whose Slurm job holds nothing for it."""
        if (session := self._registry.sessions.get(id)) is not None:
            self._dispatcher.close_session(session, _lost(session.job, session.device))
        elif (task := self._registry.tasks.get(id)) is not None:
            self._dispatcher.cancel(task, _lost(task.job, task.device))


def _lost(job: str, device: str) -> str:
    return f"Slurm job {_number(job)} holds no share of QPU {device} for it any more"


def _number(job: str) -> str:
    """The number of a Slurm job, by its name here; nothing if it is none."""
    number = job.removeprefix(PREFIX)
    return number if number != job and number.isdigit() else ""


class MissingShares:
    """Since when sessions have lacked a share in what Slurm shows.

    One look is not enough: a slurmctld that was killed and restarted shows running jobs as pending, or not at all,
    until its nodes have reported them.
    """

    def __init__(self, confirm_s: float) -> None:
        self._confirm_us = round(confirm_s * 1e6)
        self._since_us: dict[str, int] = {}  # by session

    def confirmed(self, missing: Iterable[str], now_us: int) -> list[str]:
        """Of the sessions that lack a share in this look, those that have lacked it for long enough."""
        self._since_us = {session: self._since_us.get(session, now_us) for session in missing}
        return [session for session, since_us in self._since_us.items() if now_us - since_us >= self._confirm_us]

    def forget_all(self) -> None:
        """Start anew after Slurm did not answer: what it shows next may again be incomplete."""
        self._since_us.clear()
