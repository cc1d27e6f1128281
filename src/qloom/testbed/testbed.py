"""A testbed as its user sees it: up, down, status, its environment, and faults on request."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from qloom.errors import InputError, NotPrivate, QloomError
from qloom.testbed import place, processes
from qloom.testbed.configs import write_configs
from qloom.testbed.place import (
    CONTROL,
    FILE,
    TestbedRecord,
    free_ports,
    is_alive,
    read_record,
    read_supervisor,
    write_record,
)
from qloom.testbed.settings import TestbedSettings, check_name
from qloom.testbed.supervisor import READY

END_S, CONTROL_S = 30.0, 75.0
PORT_TRIES = 3  # another process may take a port that was free a moment ago


@dataclass
class Testbed:
    """A running Slurm in a private directory."""

    directory: Path
    settings: TestbedSettings
    _lifeline: IO[str] | None = field(default=None, repr=False)  # closed, it ends an attached testbed

    __test__ = False  # for pytest, which takes it for a test

    @classmethod
    def find(cls, name: str = "default", directory: Path | None = None) -> Testbed:
        """Find one that was started before."""
        where = _place(name, directory)
        return cls(where, read_record(where).settings)

    @classmethod
    def up(
        cls,
        name: str = "default",
        settings: TestbedSettings = TestbedSettings(),
        *,
        directory: Path | None = None,
        attached: bool = False,  # end it when this process ends, in whatever way
        say: Callable[[str], None] = lambda line: None,
    ) -> Testbed:
        """Start one and wait until all its nodes are idle; removes what a crashed one has left there."""
        where = _place(name, directory)
        settings.installation.require(accounting=settings.accounting)
        made = cls(where, settings)
        place.make_root(where)
        place.require_private(where)
        with _lock(where):
            if made.is_up():
                down = f"qloom testbed down {f'--directory {directory}' if directory else name}"
                raise InputError(f"the testbed in {where} is up", hint=f"{down}, or start another")
            if (where / FILE).exists() or (directory is None and where.exists()):
                made.down()
            for tries_left in reversed(range(PORT_TRIES)):
                try:
                    made._set_up(attached, say)
                    break
                except QloomError as error:
                    if not tries_left or "Address already in use" not in error.message:
                        raise
        return made

    def _set_up(self, attached: bool, say: Callable[[str], None]) -> None:
        place.make(self.directory)
        try:
            record = TestbedRecord(self.settings, free_ports(self.settings), attached)
            write_configs(self.directory, self.settings, record.ports)
            write_record(self.directory, record)
            self._start(attached, say)
        except BaseException:
            self.down()
            raise

    def _start(self, attached: bool, say: Callable[[str], None]) -> None:
        with open(self.directory / "log" / "supervisor.out", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "qloom.testbed", str(self.directory)],
                stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, processes.MARK: str(self.directory)},
                cwd="/",
                start_new_session=True,
                text=True,
            )
        assert process.stdout is not None  # noqa: S101
        self._lifeline = process.stdin
        with process.stdout as lines:
            process.wait()  # the supervisor goes on as nobody's child
            for line in lines:
                if line.startswith("failed: "):
                    raise QloomError(f"the testbed did not come up: {json.loads(line.removeprefix('failed: '))}")
                if line.strip() == READY:
                    return
                say(line.rstrip())
        raise QloomError("the testbed did not come up: its supervisor has ended")

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point Slurm's commands and qloom at this testbed; with a prefix, also `PATH`."""
        variables = {"SLURM_CONF": str(self.directory / "etc" / "slurm.conf")}
        if self.settings.slurm_prefix:
            variables["PATH"] = self.settings.installation.client_path
        if self.settings.broker:
            variables["QLOOM_BROKER"] = f"unix:{self.directory}/run/broker.sock"
        return variables

    def is_up(self) -> bool:
        """Whether the supervisor answers."""
        with contextlib.suppress(OSError, QloomError):
            self._ask("status")
            return True
        return False

    def down(self) -> None:
        """End the testbed and remove all that it left, also if it has crashed."""
        place.require_private(self.directory)
        supervisor = read_supervisor(self.directory)
        if supervisor is not None and is_alive(supervisor):
            os.kill(supervisor[0], signal.SIGTERM)
            deadline_s = time.monotonic() + END_S
            while is_alive(supervisor) and time.monotonic() < deadline_s:
                time.sleep(0.02)
        if self._lifeline is not None:
            self._lifeline.close()
        if not processes.kill_all(lambda: processes.left_over(self.directory)):
            raise QloomError(f"processes of {self.directory} cannot be ended", hint="they may belong to another user")
        place.remove(self.directory)

    def status(self) -> list[dict[str, Any]]:
        """List the daemons: `name`, `up`, `pid`, and if it is down `why` and the last lines of its `log`."""
        try:
            return list(self._ask("status")["daemons"])
        except OSError:
            raise QloomError(f"the testbed in {self.directory} has crashed", hint="qloom testbed down") from None

    def nodes(self) -> list[dict[str, Any]]:
        """List the nodes: `name`, `up`, its `state` in Slurm's words, and `why`; empty if slurmctld is silent."""
        try:
            lines = self.run("sinfo", "-h", "-N", "-o", "%N|%T|%E", timeout_s=5.0).splitlines()
        except (QloomError, subprocess.TimeoutExpired):
            return []
        rows = []
        for node, state, reason in (line.split("|", 2) for line in lines):
            up = not state.startswith(("down", "drain", "fail", "unknown")) and not state.endswith("*")
            rows.append({"name": node, "up": up, "state": state, "why": "" if reason == "none" else reason})
        return rows

    def stop(self, daemon: str) -> None:
        """Stop a daemon (slurmctld, slurmd.c1, slurmdbd, mariadbd, munged, broker) with SIGTERM; it stays down."""
        self._ask("stop", daemon)

    def kill(self, daemon: str) -> None:
        """Kill a daemon with SIGKILL; it stays down."""
        self._ask("kill", daemon)

    def start(self, daemon: str) -> None:
        """Start a daemon that is down, and wait until it answers."""
        self._ask("start", daemon)

    def set_node(self, node: str, state: str, reason: str = "testbed") -> None:
        """Set a node to DOWN, DRAIN or RESUME."""
        self.run("scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}")

    def run(self, name: str, *arguments: str, timeout_s: float = 30.0, cwd: Path | None = None) -> str:
        """Run a command with this testbed's environment and return its output."""
        done = subprocess.run(
            [self.settings.installation.program(name), *arguments],
            env={**os.environ, **self.environment, "PATH": self.settings.installation.search_path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=cwd,
            check=False,
        )
        if done.returncode != 0:
            raise QloomError(f"{name} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _ask(self, verb: str, daemon: str | None = None) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONTROL_S)
            connection.connect(str(self.directory / CONTROL))
            connection.sendall(json.dumps({"do": verb, "daemon": daemon}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer: dict[str, Any] = json.loads(lines.readline() or b'{"error": "the testbed has gone"}')
        if "error" in answer:
            raise QloomError(answer["error"])
        return answer


def _place(name: str, directory: Path | None) -> Path:
    return directory.resolve() if directory is not None else place.default_directory(check_name(name))


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Allow one `up` at a time for a directory."""
    path = directory.with_name(f".{directory.name}.lock")
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"cannot write to {directory.parent}: {error.strerror}") from None
    with open(file, "r+"):
        if os.fstat(file).st_uid != os.geteuid():
            raise NotPrivate(f"{path} belongs to another user", hint=place.ELSEWHERE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"a testbed is being started in {directory}") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
