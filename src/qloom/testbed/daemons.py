"""The daemons of a testbed: how each is started, how it shows that it is ready, and the database of the accounting.

A database that knows the site is made once and kept in the cache, since making it takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from qloom.errors import QloomError
from qloom.private import PrivateDirectory
from qloom.testbed.configs import CLUSTER, THIS_QLOOM, Ports, loopback, user_name
from qloom.testbed.processes import MARK, die_with_parent
from qloom.testbed.settings import SlurmInstallation, TestbedSettings

ACCOUNT, OTHER_ACCOUNT = "research", "teaching"
MAX_JOBS, MAX_SUBMIT = 32, 64  # of an account
NORMAL = ("Priority=100", "Preempt=low", "Flags=DenyOnLimit", "MaxWall=1-00:00:00")
SMALL = (  # little to write, and little to copy
    "--innodb-log-file-size=8M",
    "--innodb-autoextend-increment=1",
    "--innodb-buffer-pool-size=64M",
)


def accounting_commands(settings: TestbedSettings) -> list[list[str]]:
    """Arguments of `sacctmgr -i`, one list per call."""
    commands = [["add", "cluster", CLUSTER]]
    if settings.strict:
        jobs = [f"GrpJobs={MAX_JOBS}", f"GrpSubmitJobs={MAX_SUBMIT}"]
        commands += [
            ["add", "qos", "low", "Priority=1", "PreemptMode=requeue"],
            ["modify", "qos", "normal", "set", *NORMAL],
            ["add", "account", ACCOUNT, f"Cluster={CLUSTER}", *jobs],
            ["add", "account", OTHER_ACCOUNT, f"Cluster={CLUSTER}", "GrpTRES=node=1", "MaxJobs=2", "MaxSubmitJobs=4"],
            ["add", "user", user_name(), f"Account={ACCOUNT}", f"DefaultAccount={ACCOUNT}", "QOS=normal,low"],
            ["add", "user", user_name(), f"Account={OTHER_ACCOUNT}", "QOS=normal,low"],
            ["modify", "user", user_name(), "set", f"DefaultAccount={ACCOUNT}", "DefaultQOS=normal"],
        ]
    return commands


def kept_database(commands: list[list[str]], installation: SlurmInstallation) -> Path:
    """Where a database is kept to which these commands of `sacctmgr` were given; it may not be there yet."""
    made_by = [os.stat(installation.program(name)) for name in ("mariadbd", "slurmdbd")]
    content = json.dumps([commands, SMALL, os.getuid(), *((one.st_size, one.st_mtime_ns) for one in made_by)])
    return _cache_directory() / f"accounting-{sha256(content.encode()).hexdigest()[:12]}"


def make_command(directory: Path) -> list[str]:
    """The command that makes an empty database for a testbed."""
    return [
        "mariadb-install-db",
        "--no-defaults",
        f"--user={user_name()}",
        f"--datadir={directory / 'db'}",
        f"--tmpdir={directory / 'tmp'}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        *SMALL,
    ]


def take_database(kept: Path, directory: Path) -> None:
    """Give a testbed its own copy of a database that was kept; what it holds decides who is an administrator."""
    PrivateDirectory.open(kept).close()
    shutil.copytree(kept, directory / "db", dirs_exist_ok=True)


def keep_database(directory: Path, kept: Path) -> None:
    """Keep a copy of a testbed's database, which must have been ended in order."""
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = Path(tempfile.mkdtemp(prefix=".new-", dir=kept.parent))
    except OSError as error:
        raise QloomError(f"cannot write to {kept.parent}: {error.strerror}", hint="set XDG_CACHE_HOME") from None
    try:
        shutil.copytree(directory / "db", copy, dirs_exist_ok=True)
        os.rename(copy, kept)
    except OSError:
        if not kept.is_dir():  # whoever is first wins: the others' are the same
            raise
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qloom"


TAIL_LINES = 4


@dataclass
class Daemon:
    """One daemon, in the foreground, as a child of the supervisor."""

    name: str
    command: list[str]
    answers: Callable[[], bool]
    log: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    asked: bool = False  # a signal was sent to it on request

    @property
    def alive(self) -> bool:
        """Whether its process is running."""
        return self.process is not None and self.process.poll() is None

    def spawn(self) -> None:
        """Start it."""
        self.asked = False
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.log.parent,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def signal(self, number: int) -> None:
        """Send it a signal, if it is alive."""
        if self.alive:
            assert self.process is not None  # noqa: S101
            self.asked = True
            self.process.send_signal(number)

    def why(self) -> str:
        """Why it is down."""
        code = None if self.process is None else self.process.poll()
        if code is None:
            return "not started"
        end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{end}{', as asked' if self.asked else ''}"

    def tail(self) -> list[str]:
        """The last lines of its log."""
        try:
            return self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        except OSError:
            return []


def all_daemons(directory: Path, settings: TestbedSettings, ports: Ports) -> list[Daemon]:
    """Every daemon of a testbed, in the order in which they start."""
    run, etc, log = directory / "run", directory / "etc", directory / "log"
    address, installation = loopback(), settings.installation
    program = installation.program
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "SALLOC"))},
        "PATH": installation.search_path,
        "SLURM_CONF": str(etc / "slurm.conf"),
        MARK: str(directory),
    }

    def daemon(name: str, command: list[str], answers: Callable[[], bool]) -> Daemon:
        return Daemon(name, command, answers, log / f"{name}.out", environment)

    def unix(name: str) -> Callable[[], bool]:
        return lambda: _connects(socket.AF_UNIX, str(run / name))

    def port(number: int) -> Callable[[], bool]:
        return lambda: _connects(socket.AF_INET, (address, number))

    found = [daemon("munged", [program("munged"), *_munged_options(directory)], unix("munge.sock"))]
    if settings.accounting:
        found.append(daemon("mariadbd", [program("mariadbd"), *_mariadbd_options(directory)], unix("mysql.sock")))
        slurmdbd = daemon("slurmdbd", [program("slurmdbd"), "-D"], port(ports.slurmdbd))
        slurmdbd.environment = {**environment, "MYSQL_UNIX_PORT": str(run / "mysql.sock")}
        found.append(slurmdbd)
    # -i: without it Slurm 26.05 cannot start after a crash in its first minutes, before it has saved all of its state
    found.append(daemon("slurmctld", [program("slurmctld"), "-D", "-i"], port(ports.slurmctld)))
    if settings.broker:
        serve = [*THIS_QLOOM, "broker", "serve", "--config", str(etc / "broker.toml")]
        found.append(daemon("broker", serve, unix("broker.sock")))
    stepd = [] if installation.slurmstepd is None else ["-d", str(installation.slurmstepd)]
    for node, number in zip(settings.node_names, ports.slurmd, strict=True):
        (directory / "tmp" / node).mkdir(exist_ok=True)
        found.append(daemon(f"slurmd.{node}", [program("slurmd"), "-D", *stepd, "-N", node], port(number)))
    return found


def _munged_options(directory: Path) -> list[str]:
    options = {
        "socket": directory / "run" / "munge.sock",
        "key-file": directory / "etc" / "munge.key",
        "pid-file": directory / "run" / "munged.pid",
        "log-file": directory / "log" / "munged.log",
        "seed-file": directory / "run" / "munge.seed",
    }
    # forced, since it would refuse a socket in a private directory
    return ["--foreground", "--force", *(f"--{name}={value}" for name, value in options.items())]


def _mariadbd_options(directory: Path) -> list[str]:
    return [
        "--no-defaults",
        f"--user={user_name()}",
        f"--datadir={directory}/db",
        f"--socket={directory}/run/mysql.sock",
        "--skip-networking",
        f"--pid-file={directory}/run/mariadbd.pid",
        f"--tmpdir={directory / 'tmp'}",
        *SMALL,
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-lock-wait-timeout=900",
    ]


def _connects(family: socket.AddressFamily, place: str | tuple[str, int]) -> bool:
    with socket.socket(family) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(place)
        except OSError:
            return False
    return True
