"""What callers may do with tasks: submit, look, wait, cancel.

Every reply is sent only after its state change is on disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from qloom.broker.api.sessions import SessionApi
from qloom.broker.clock import BrokerTime
from qloom.broker.dispatcher import Dispatcher
from qloom.broker.placing import Placing, payload_text
from qloom.broker.problems import Conflict, Forbidden, NotFound, StoreFull
from qloom.broker.queue.core import QueueCore
from qloom.broker.queue.events import TaskCancelled, TaskSubmitted
from qloom.broker.queue.task import Place
from qloom.broker.records import SessionRecord, TaskRecord
from qloom.broker.requests import ANY_DEVICE, Caller, TaskRequest
from qloom.broker.slurm_shares import SlurmShares
from qloom.broker.store.task_store import TaskStore, View
from qloom.broker.stored import IdempotencyKey, KeyRing, StoredRegistry, not_stored
from qloom.errors import InputError, Refused
from qloom.model import QpuHold


class TaskApi:
    """Tasks, for their owners. With `shares`, every task outside a session needs a Slurm job that holds a share."""

    def __init__(
        self,
        core: QueueCore,
        dispatcher: Dispatcher,
        registry: StoredRegistry,
        store: TaskStore,
        time: BrokerTime,
        placing: Placing,
        sessions: SessionApi,
        keys: KeyRing,
        shares: SlurmShares | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._core, self._dispatcher, self._registry, self._store = core, dispatcher, registry, store
        self._time, self._placing, self._sessions, self._keys = time, placing, sessions, keys
        self._shares = shares
        self.new_id = new_id

    async def submit(self, who: Caller, request: TaskRequest) -> View:
        """Accept a task, or raise; the same idempotency key gives the same task again."""
        project = who.project(request.project or self._project_of(who, request.session))
        key = IdempotencyKey("tasks", who.user, project, request.key) if request.key is not None else None
        if (view := await self._made_with_key(who, request, key)) is not None:
            return view
        session = self._session_for(who, request, project)
        if not who.admin:
            self._core.ledger.require_priority(project, request.priority)
        place, others = self._place(request, session)
        text, job = payload_text(request), request.job or (session.job if session else who.user)
        if self._shares is not None and session is None:
            job = await self._shares.require_task(who, request.slurm_job, place.device)
            others = ()  # the job holds a share of this one
            if (view := await self._made_with_key(who, request, key)) is not None:  # it may have been sent twice
                return view
        now_us = self._time.now_us()
        task = TaskRecord(
            id=self.new_id(),
            user=who.user,
            project=project,
            name=request.name,
            device=place.device,
            session=session.id if session else None,
            job=job,
            submitted_us=now_us,
            expected_s=place.expected_s,
            priority=request.priority,
            max_wait_s=request.max_wait_s,
            time_limit_s=place.time_limit_s,
            set_up=place.set_up,
            places=others,
            key=request.key,
            note=request.note,
        )
        actions = self._core.handle(TaskSubmitted(task.quantum_task()), now_us)  # raises if it is not admitted
        self._registry.add_task(task, request.digest(), text)
        self._dispatcher.carry_out(actions)
        if session is not None:
            session.used_us = now_us
        view = task.view()
        try:
            await self._keys.accept(task.id, key)
        except StoreFull:
            task.refused = True
            self._dispatcher.handle(TaskCancelled(task.id))
            raise
        return view

    def _project_of(self, who: Caller, session: str | None) -> str | None:
        """The project that a session of the caller is charged to, if they name one."""
        return str(self._sessions.view(who, session)["project"]) if session is not None else None

    def _session_for(self, who: Caller, request: TaskRequest, project: str) -> SessionRecord | None:
        """The session that a task is to run in; it is charged as its session is."""
        if request.session is None:
            return None
        session = self._sessions.usable(who, request.session)
        if session.project != project:
            raise Refused(f"session {session.id} is charged to project {session.project}, not {project}")
        return session

    def _place(self, request: TaskRequest, session: SessionRecord | None) -> tuple[Place, tuple[Place, ...]]:
        """Where a task is to wait, and where else it may run."""
        if request.device is not None and request.devices:
            raise InputError("a task names one device or several, not both")
        if session is None:
            return self._placing.choose(request, request.device, whole=False)
        wanted, named = request.device or session.device, request.devices
        if wanted != session.device or (named and session.device not in (*named, ANY_DEVICE)):
            raise Refused(f"session {session.id} holds QPU {session.device}, not {request.device or named[0]}")
        return self._placing.choose(request, session.device, whole=session.hold is QpuHold.WHOLE)

    async def _made_with_key(self, who: Caller, request: TaskRequest, key: IdempotencyKey | None) -> View | None:
        """The task that was made with this key before."""
        if (id := await self._keys.made_with(key)) is None:
            return None
        if (digest := self._store.digest(id)) is None:
            raise not_stored()
        if digest != request.digest():
            raise Conflict("this idempotency key was used for another task", hint="use a new key for a new task")
        task = self._registry.tasks.get(id)
        if task is not None and self._shares is not None and task.session is None:
            await self._go_on_in(who, task, request.slurm_job, self._shares)
        return self.status(who, id)

    async def _go_on_in(self, who: Caller, task: TaskRecord, slurm_job: str | None, shares: SlurmShares) -> None:
        """A task goes on in the Slurm job of a driver that was killed, and is resumed."""
        job = await shares.require_task(who, slurm_job, task.device)
        if job != task.job:
            task.job = job
            self._store.set_job(task.id, job)
            await self._store.durable()

    # Looking

    def status(self, who: Caller, id: str) -> View:
        """How a task stands, with its place in the queue."""
        task = self._registry.tasks.get(id)
        view = task.view() if task is not None else self._store.task_view(id)
        if not view or not who.may_see(view["project"]):
            raise NotFound(f"there is no task {id}")
        view = self.as_seen(who, view)
        if view["state"] == "queued" and task is not None:
            view["position"], ahead_s = (0, 0.0) if task.over else self._core.ahead(id)
            starts = self._core.is_up(view["device"]) and not view["held"]
            view["expected_wait_s"] = ahead_s if starts else None
        return view

    def result(self, who: Caller, id: str) -> View:
        """The status, and for a task that is done its result: JSON that is passed on unread."""
        view = self.status(who, id)
        if view["project"] not in who.projects:
            raise NotFound(f"there is no task {id}")
        if view["state"] == "done":
            view["result"] = self._store.result(id)
        return view

    def note(self, who: Caller, id: str) -> str:
        """What the door that a task of the caller came through keeps with it; empty if it came another way."""
        task = self._registry.tasks.get(id)
        project = task.project if task is not None else self._store.task_view(id).get("project")
        if project not in who.projects:
            raise NotFound(f"there is no task {id}")
        return task.note if task is not None else self._store.note(id)

    def as_seen(self, who: Caller, view: View) -> View:
        """A task as a caller may see it: whose session it runs in is for those to know who may use that."""
        if view["session"] is not None and view["user"] != who.user and not who.admin:
            session = self._registry.sessions.get(view["session"])
            if session is None or not session.usable_by(who):
                view["session"] = None
        if view["project"] not in who.projects:
            view["name"] = None
        return view

    async def wait(self, who: Caller, id: str, within_s: float | None = None) -> View:
        """`result` once the task is over, or when the time is up."""
        if (task := self._not_over(who, id)) is not None:
            await self._registry.wait(task.ended, within_s)
        return self.result(who, id)

    async def wait_begun(self, who: Caller, id: str, within_s: float | None = None) -> View:
        """`status` once the task executes or is over, or when the time is up."""
        task = self._not_over(who, id)
        if task is not None and task.state != "executing":
            await self._registry.wait(task.begun, within_s)
        return self.status(who, id)

    def _not_over(self, who: Caller, id: str) -> TaskRecord | None:
        """A task that is not over; where it stands in the queue, which takes a while, is not looked up."""
        task = self._registry.tasks.get(id)
        if task is not None and not who.may_see(task.project):
            raise NotFound(f"there is no task {id}")
        return task

    async def cancel(self, who: Caller, id: str) -> View:
        """Cancel a task: it leaves the queue, or is taken back from its device."""
        view = self.status(who, id)
        task = self._registry.tasks.get(id)
        if task is None:
            return view
        if task.user != who.user and not who.admin:
            raise Forbidden(f"task {id} belongs to somebody else in project {task.project}")
        self._dispatcher.cancel(task)
        await self._store.durable()
        return self.status(who, id)
