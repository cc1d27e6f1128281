"""Accounting of a testbed: what it knows from the start, and the database behind it.

A database that knows the site is made once and kept in the cache, since making it takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

from qloom.errors import QloomError
from qloom.private import PrivateDirectory
from qloom.testbed.configs import CLUSTER, user_name
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
