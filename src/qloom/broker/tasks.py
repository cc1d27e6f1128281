"""What callers can ask about tasks."""

from __future__ import annotations

import asyncio

from qloom.broker.desk import Desk, Key, View, refuse_again
from qloom.broker.placing import Placing, payload_text
from qloom.broker.problems import Conflict, Forbidden, NotFound, StoreFull
from qloom.broker.queue.events import Cancelled, Place, Submitted
from qloom.broker.store.loading import places_text
from qloom.broker.store.records import ANY_DEVICE, ENDED_COLUMNS, Caller, Live, LiveSession, Order
from qloom.errors import InputError, Refused
from qloom.model import JsonText, QpuHold


class TaskDesk(Desk):
    """Submit, look, wait, cancel."""

    async def submit(self, who: Caller, order: Order) -> View:
        """Accept a task, or raise; the same idempotency key gives the same task again."""
        project = who.project(order.project or self._project_of(who, order.session))
        key: Key | None = ("tasks", who.user, project, order.key) if order.key is not None else None
        if (view := await self._made_with_key(who, order, key)) is not None:
            return view
        session = self._session_for(who, order, project)
        if not who.admin:
            self.core.ledger.require_priority(project, order.priority)
        place, others = self._place(order, session)
        text, job = payload_text(order), order.job or (session.job if session else who.user)
        if self.require_job_for_tasks and session is None:
            job = await self.require_job(who, order.slurm_job, place.device)
            others = ()  # the job holds a share of this one
            if (view := await self._made_with_key(who, order, key)) is not None:  # it may have been sent twice
                return view
        now_us = self.now_us()
        submitted = Submitted(
            self.new_id(),
            place.device,
            session.id if session else None,
            place.expected_s,
            project,
            job,
            order.priority,
            order.max_wait_s,
            place.time_limit_s,
            place.set_up,
            others,
        )
        actions = self.core.handle(submitted, now_us)
        task = Live(submitted.task, who.user, project, order.name, submitted, now_us, order.key, job)
        self.live[task.id] = task
        self._stage(task, order.digest(), text)
        self.apply(actions)
        if session is not None:
            session.used_us = now_us
        view = task.view()
        try:
            await self.accept(task, key)
        except StoreFull:
            task.refused = True
            self.handle(Cancelled(task.id))
            raise
        return view

    def _project_of(self, who: Caller, session: str | None) -> str | None:
        """The project that a session of the caller is charged to, if they name one."""
        return str(self.session(who, session)["project"]) if session is not None else None

    def _session_for(self, who: Caller, order: Order, project: str) -> LiveSession | None:
        """The session that a task is to run in; it is charged as its session is."""
        if order.session is None:
            return None
        session = self.usable_session(who, order.session)
        if session.project != project:
            raise Refused(f"session {session.id} is charged to project {session.project}, not {project}")
        return session

    def _place(self, order: Order, session: LiveSession | None) -> tuple[Place, tuple[Place, ...]]:
        """Where a task is to wait, and where else it may run."""
        if order.device is not None and order.devices:
            raise InputError("a task names one device or several, not both")
        if session is None:
            return Placing(self.devices, self.specs, self.core).choose(order, order.device, whole=False)
        wanted = order.device or session.device
        if wanted != session.device or (order.devices and session.device not in (*order.devices, ANY_DEVICE)):
            raise Refused(f"session {session.id} holds QPU {session.device}, not {order.device or order.devices[0]}")
        whole = session.hold is QpuHold.WHOLE
        return Placing(self.devices, self.specs, self.core).choose(order, session.device, whole=whole)

    def _stage(self, task: Live, digest: str, text: str) -> None:
        submitted = task.submitted
        self.store.stage_new(task.id)
        self.store.stage(
            "INSERT INTO tasks (id, user, project, device, session, job, name, key, digest, expected_s, priority, "
            "max_wait_s, time_limit_s, set_up, places, state, submitted_us) "
            "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,'queued',?)",
            *(task.id, task.user, task.project, submitted.device, submitted.session, submitted.job, task.name),
            *(task.key, digest, submitted.expected_s, submitted.priority, submitted.max_wait_s),
            *(submitted.time_limit_s, submitted.set_up, places_text(submitted.places), task.submitted_us),
            group=task.id,
        )
        self.store.stage("INSERT INTO payloads VALUES (?, ?)", task.id, text, group=task.id)
        self.publish(task)

    async def _made_with_key(self, who: Caller, order: Order, key: Key | None) -> View | None:
        """The task that was made with this key before."""
        if key is None or (task := self.by_key(key)) is None:
            return None
        await self.settled(task)
        row = self.store.row("SELECT digest FROM tasks WHERE id = ?", task)
        if row is None:
            raise refuse_again()
        if row["digest"] != order.digest():
            raise Conflict("this idempotency key was used for another task", hint="use a new key for a new task")
        live = self.live.get(task)
        if live is not None and self.require_job_for_tasks and live.submitted.session is None:
            await self._go_on_in(who, live, order.slurm_job)
        return self.status(who, task)

    async def _go_on_in(self, who: Caller, task: Live, slurm_job: str | None) -> None:
        """A task goes on in the Slurm job of a driver that was killed, and is resumed."""
        job = await self.require_job(who, slurm_job, task.submitted.device)
        if job != task.job:
            task.job = job
            self.store.stage("UPDATE tasks SET job = ? WHERE id = ?", job, task.id, group=task.id)
            await self.store.durable()

    # Looking

    def status(self, who: Caller, task: str) -> View:
        """How a task stands, with its place in the queue."""
        live = self.live.get(task)
        if live is not None:
            view = live.view()
        else:
            row = self.store.row(f"SELECT {ENDED_COLUMNS} FROM tasks WHERE id = ?", task)  # noqa: S608
            view = {**row, "held": False} if row is not None else {}
        if not view or not self.may_see(who, view["project"]):
            raise NotFound(f"there is no task {task}")
        view = self.as_seen(who, view)
        if view["state"] == "queued" and live is not None:
            view["position"], ahead_s = (0, 0.0) if live.over else self.core.ahead(task)
            starts = self.core.is_up(view["device"]) and not view["held"]
            view["expected_wait_s"] = ahead_s if starts else None
        return view

    def result(self, who: Caller, task: str) -> View:
        """The status, and for a task that is done its result: JSON that is passed on unread."""
        view = self.status(who, task)
        if view["project"] not in who.projects:
            raise NotFound(f"there is no task {task}")
        if view["state"] == "done":
            row = self.store.row("SELECT body FROM results WHERE task = ?", task)
            view["result"] = JsonText(row["body"]) if row is not None else None
        return view

    async def wait(self, who: Caller, task: str, within_s: float | None = None) -> View:
        """`result` once the task is over, or when the time is up."""
        if self._live(who, task) is not None:
            await self._told(self.waiters, task, within_s)
        return self.result(who, task)

    async def wait_begun(self, who: Caller, task: str, within_s: float | None = None) -> View:
        """`status` once the task executes or is over, or when the time is up."""
        live = self._live(who, task)
        if live is not None and live.state != "executing":
            await self._told(self.begun_waiters, task, within_s)
        return self.status(who, task)

    def _live(self, who: Caller, task: str) -> Live | None:
        """A task that is not over; where it stands in the queue, which takes a while, is not looked up."""
        live = self.live.get(task)
        if live is not None and not self.may_see(who, live.project):
            raise NotFound(f"there is no task {task}")
        return live

    async def _told(self, waiters: dict[str, list[asyncio.Future[None]]], task: str, within_s: float | None) -> None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.setdefault(task, []).append(told)
        try:
            await self.within(told, within_s)
        finally:
            waiting = waiters.get(task, [])
            if told in waiting:
                waiting.remove(told)
            if not waiting:
                waiters.pop(task, None)

    async def cancel(self, who: Caller, task: str) -> View:
        """A task is no longer wanted: it leaves the queue, or is taken back from its device."""
        view = self.status(who, task)
        live = self.live.get(task)
        if live is None:
            return view
        if live.user != who.user and not who.admin:
            raise Forbidden(f"task {task} belongs to somebody else in project {live.project}")
        self.note_unwanted(live)
        self.handle(Cancelled(task))
        await self.store.durable()
        return self.status(who, task)
