"""The process behind a testbed: starts the daemons, watches them, and ends them when it ends.

The supervisor adopts every orphan below it, so that no job step outlives it; the kernel kills the daemons if the
supervisor is killed. Until it is ready it reports to the process that started it, one line per step.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from qloom.aio import TaskScope
from qloom.errors import InputError, QloomError
from qloom.testbed import place
from qloom.testbed.daemons import (
    Daemon,
    accounting_commands,
    all_daemons,
    keep_database,
    kept_database,
    make_command,
    take_database,
)
from qloom.testbed.place import CONTROL, TestbedRecord, read_record, write_supervisor
from qloom.testbed.processes import adopt_orphans, descendants, kill_all, name_of, remove_unused, shared_memory

START_S, CLIENT_S, END_S, GRACE_S = 60.0, 20.0, 10.0, 3.0
MAKE_S = 120.0
PROBE_S = 0.03
READY = "ready"


class TestbedSupervisor:
    """Brings a testbed up, keeps it, and brings it down."""

    def __init__(self, directory: Path, record: TestbedRecord, say: Callable[[str], None]) -> None:
        self.directory, self.settings = directory, record.settings
        self.installation = record.settings.installation
        self.say = say
        self.daemons = {one.name: one for one in all_daemons(directory, record.settings, record.ports)}
        self.environment = next(iter(self.daemons.values())).environment
        self.ended = asyncio.Event()
        self._clients: dict[int, subprocess.Popen[bytes]] = {}

    async def run(self) -> None:
        """Run until asked to end by a signal. Raises if the testbed does not come up."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.ended.set)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        scope = TaskScope()
        coming_up = scope.start(self._bring_up())
        ending = scope.start(self.ended.wait())
        try:
            await asyncio.wait({coming_up, ending}, return_when=asyncio.FIRST_COMPLETED)
            if coming_up.done():
                coming_up.result()
                server = await asyncio.start_unix_server(self._answer, str(self.directory / CONTROL))
                self.say(READY)
                await ending
                server.close()
        finally:
            await scope.aclose()
            await self._bring_down()

    # Up

    async def _bring_up(self) -> None:
        self.daemons["munged"].spawn()
        if self.settings.accounting:
            await self._bring_up_accounting()
        await self._ready("munged")
        await self._start("slurmctld")
        if "broker" in self.daemons:  # its hook reports the state of the device to slurmctld
            self.daemons["broker"].spawn()
        for node in self.settings.node_names:
            self.daemons[f"slurmd.{node}"].spawn()
        self.say("nodes")
        await self._until(self._nodes_idle, "the nodes are not idle")
        if "broker" in self.daemons:
            await self._ready("broker")

    async def _bring_up_accounting(self) -> None:
        commands = accounting_commands(self.settings)
        kept = kept_database(commands, self.installation)
        if kept.is_dir():
            await asyncio.to_thread(take_database, kept, self.directory)
        else:
            self.say("a new database")
            await self._client(*make_command(self.directory), timeout_s=MAKE_S)
            await self._start("mariadbd")
            await self._ready("munged")
            await self._start("slurmdbd")
            for command in commands:
                await self._client("sacctmgr", "-i", *command)
            for name in ("slurmdbd", "mariadbd"):
                await self._stop(self.daemons[name], signal.SIGTERM)
            await asyncio.to_thread(keep_database, self.directory, kept)
        await self._start("mariadbd")
        await self._ready("munged")
        await self._start("slurmdbd")

    async def _start(self, name: str) -> None:
        self.daemons[name].spawn()
        await self._ready(name)

    async def _ready(self, name: str) -> None:
        daemon = self.daemons[name]

        async def answers() -> bool:
            _require_alive(daemon)
            return daemon.answers()

        await self._until(answers, f"{name} does not answer")
        self.say(name)

    async def _until(self, holds: Callable[[], Awaitable[bool]], otherwise: str, within_s: float = START_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not await holds():
            if time.monotonic() > deadline_s:
                raise QloomError(f"{otherwise} after {within_s:g} s")
            await asyncio.sleep(PROBE_S)

    async def _nodes_idle(self) -> bool:
        for node in self.settings.node_names:
            _require_alive(self.daemons[f"slurmd.{node}"])
        states = (await self._client("sinfo", "-h", "-N", "-o", "%t")).split()
        return len(states) == len(self.settings.node_names) and all(state == "idle" for state in states)

    async def _client(self, name: str, *arguments: str, timeout_s: float = CLIENT_S) -> str:
        process = subprocess.Popen(  # noqa: ASYNC220  (asyncio's own would quarrel with `_reap`)
            [self.installation.program(name), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
        )
        self._clients[process.pid] = process
        try:
            output, _ = await asyncio.to_thread(process.communicate, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.communicate)
            raise QloomError(f"{name} did not answer within {timeout_s:g} s") from None
        finally:
            self._clients.pop(process.pid, None)
        if process.returncode != 0:
            raise QloomError(f"{name} failed: {output.decode(errors='replace').strip()}")
        return output.decode()

    def _reap(self) -> None:
        """Collect the exit codes of children that have ended, adopted ones too."""
        own = {daemon.process.pid: daemon.process for daemon in self.daemons.values() if daemon.process is not None}
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            process = own.get(dead.si_pid) or self._clients.get(dead.si_pid)
            if process is None:
                os.waitpid(dead.si_pid, 0)
            elif process.poll() is None:
                return  # another thread is collecting it
            elif dead.si_pid in own:
                self._note(next(one for one in self.daemons.values() if one.process is process))

    def _note(self, daemon: Daemon) -> None:
        print(f"{daemon.name} {daemon.why()}", file=sys.stderr, flush=True)

    # Control

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            answer = await self._do(request["do"], request.get("daemon"))
        except (QloomError, KeyError, ValueError) as error:
            answer = {"error": str(error)}
        with contextlib.suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            writer.close()

    async def _do(self, verb: str, name: str | None) -> dict[str, Any]:
        if verb == "status":
            return {"daemons": [self._view(daemon) for daemon in self.daemons.values()]}
        daemon = self.daemons.get(name or "")
        if daemon is None:
            raise InputError(f"unknown daemon {name!r}", hint=f"choose one of {', '.join(self.daemons)}")
        if verb in ("stop", "kill"):
            await self._stop(daemon, signal.SIGKILL if verb == "kill" else signal.SIGTERM)
        elif verb == "start":
            if not daemon.alive:
                await self._start(daemon.name)
        else:
            raise InputError(f"unknown request {verb!r}")
        return self._view(daemon)

    def _view(self, daemon: Daemon) -> dict[str, Any]:
        up = daemon.alive and daemon.answers()
        pid = daemon.process.pid if daemon.process is not None and daemon.alive else None
        why = "" if up else "does not answer" if daemon.alive else daemon.why()
        return {"name": daemon.name, "up": up, "pid": pid, "why": why, "log": [] if up else daemon.tail()}

    # Down

    async def _bring_down(self) -> None:
        shared = shared_memory(descendants(os.getpid()))
        if self.daemons["slurmctld"].alive:
            with contextlib.suppress(QloomError):  # jobs end in order, and clients that wait for one notice
                await self._client("scancel", "--user", str(os.getuid()), timeout_s=GRACE_S)
                await self._until(self._no_steps, "jobs have not ended", within_s=GRACE_S)
        await asyncio.to_thread(kill_all, lambda: descendants(os.getpid()))  # what they would save is removed anyway
        remove_unused(shared)
        place.remove(self.directory)

    async def _no_steps(self) -> bool:
        return not any(name_of(pid) == "slurmstepd" for pid in descendants(os.getpid()))

    async def _stop(self, daemon: Daemon, number: int) -> None:
        daemon.signal(number)
        deadline_s = time.monotonic() + END_S
        while daemon.alive:
            if time.monotonic() > deadline_s:
                daemon.signal(signal.SIGKILL)
            await asyncio.sleep(PROBE_S)


def _require_alive(daemon: Daemon) -> None:
    if not daemon.alive:
        raise QloomError("\n".join([f"{daemon.name} {daemon.why()}", *daemon.tail()]))


def main() -> None:
    """Run as a process; the argument is the directory of the testbed."""
    if os.fork() != 0:
        os._exit(0)  # the supervisor goes on as nobody's child
    directory = Path(sys.argv[1])
    record = read_record(directory)
    write_supervisor(directory)
    adopt_orphans()
    starter = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # standard error is the log

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        with contextlib.suppress(BrokenPipeError, ValueError):
            print(line, file=starter, flush=True)
            if line == READY:
                starter.close()

    async def serve() -> None:
        supervisor = TestbedSupervisor(directory, record, say)
        if record.attached:
            asyncio.get_running_loop().add_reader(0, supervisor.ended.set)  # when the starter ends
        await supervisor.run()

    try:
        asyncio.run(serve())
    except Exception as error:  # reported to the process that started this
        if not isinstance(error, QloomError):
            traceback.print_exc()
        say(f"failed: {json.dumps(str(error) if isinstance(error, QloomError) else repr(error))}")
        sys.exit(1)
