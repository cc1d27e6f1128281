"""What a site's accounting knows from the start: the cluster, and on a strict site accounts, limits and QOS."""

from __future__ import annotations

from qloom.testbed.configs import CLUSTER, user_name
from qloom.testbed.settings import Settings

ACCOUNT, OTHER_ACCOUNT = "research", "teaching"
MAX_JOBS, MAX_SUBMIT = 32, 64  # of an account
NORMAL = ("Priority=100", "Preempt=low", "Flags=DenyOnLimit", "MaxWall=1-00:00:00")


def accounting_commands(settings: Settings) -> list[list[str]]:
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
