"""The configuration files of a testbed."""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from qloom.testbed.settings import TestbedSettings

CLUSTER = "qloom"
THIS_QLOOM = [sys.executable, "-c", "from qloom.cli.main import run; run()"]  # whatever $PATH says
PRIVATE = "accounts,events,jobs,reservations,usage,users"


@dataclass(frozen=True)
class Ports:
    """Where the daemons listen, on the loopback address."""

    slurmctld: int
    slurmdbd: int
    slurmd: tuple[int, ...]  # one for each node


def write_configs(directory: Path, settings: TestbedSettings, ports: Ports) -> None:
    """All configuration files, readable by their owner alone."""
    files = {
        "etc/slurm.conf": slurm_conf(directory, settings, ports),
        "etc/gres.conf": f"AutoDetect=off\nNodeName=q1 Name=qpu Count={settings.vqpus}\n",
        "etc/slurmdbd.conf": slurmdbd_conf(directory, settings, ports),
        "etc/broker.toml": broker_toml(directory, settings),
    }
    for name, text in files.items():
        _write(directory / name, text.encode())
    _write(directory / "etc" / "munge.key", os.urandom(1024))


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def slurm_conf(directory: Path, settings: TestbedSettings, ports: Ports) -> str:
    """`slurm.conf`: a cluster whose nodes are all this machine."""
    user, host, address = user_name(), socket.gethostname().partition(".")[0], loopback()
    return "\n".join(
        [
            f"ClusterName={CLUSTER}",
            f"SlurmctldHost={host}({address})",
            f"SlurmctldPort={ports.slurmctld}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={directory}/run/munge.sock",
            "CredType=cred/munge",
            f"StateSaveLocation={directory}/state",
            f"SlurmdSpoolDir={directory}/spool/%n",
            f"SlurmctldPidFile={directory}/run/slurmctld.pid",
            f"SlurmdPidFile={directory}/run/slurmd.%n.pid",
            f"SlurmctldLogFile={directory}/log/slurmctld.log",
            f"SlurmdLogFile={directory}/log/slurmd.%n.log",
            *_plugins(settings),
            "PlugStackConfig=/dev/null",
            f"TmpFS={directory / 'tmp'}/%n",  # several slurmd on one host must not share it (PMIx)
            *(["CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"] if only_loopback() else []),
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SlurmctldTimeout=30",
            "SlurmdTimeout=30",
            "KillWait=5",
            "SlurmdParameters=config_overrides",  # nodes may claim more CPUs than the machine has
            "PriorityType=priority/basic",  # the default differs between versions
            "SchedulerType=sched/backfill",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "GresTypes=qpu",
            "JobCompType=jobcomp/filetxt",
            f"JobCompLoc={directory}/log/jobcomp.log",
            *(_accounting(directory, ports) if settings.accounting else []),
            *(_strict(settings) if settings.strict else _open(settings)),
            *_nodes(settings, ports, host, address),
            "",
        ]
    )


def _plugins(settings: TestbedSettings) -> list[str]:
    plugins = settings.installation.plugins
    return [] if plugins is None else [f"PluginDir={plugins}"]


def _accounting(directory: Path, ports: Ports) -> list[str]:
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={loopback()}",
        f"AccountingStoragePort={ports.slurmdbd}",
        f"AccountingStoragePass={directory}/run/munge.sock",  # the socket of munge: AuthInfo is not used for this
        "AccountingStorageTRES=gres/qpu",
    ]


def _open(settings: TestbedSettings) -> list[str]:
    """A site that lets jobs start and change at once."""
    eager = "sched_interval=1,batch_sched_delay=0,bf_continue,bf_resolution=1"
    return [
        f"SchedulerParameters=permit_job_expansion,bf_interval={settings.backfill_s},{eager}",
        f"PartitionName=compute Nodes={_compute(settings)} Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=quantum Nodes=q1 MaxTime=INFINITE State=UP",
    ]


def _strict(settings: TestbedSettings) -> list[str]:
    """A centre's policies: whole nodes, accounts with limits, preemption, an unhurried scheduler."""
    times = "DefaultTime=00:10:00 MaxTime=1-00:00:00 State=UP"
    return [
        f"SchedulerParameters=bf_interval={settings.backfill_s}",
        "AccountingStorageEnforce=associations,limits,qos,safe",
        "EnforcePartLimits=ALL",
        "PreemptType=preempt/qos",
        "PreemptMode=REQUEUE",
        "JobRequeue=0",
        f"PrivateData={PRIVATE}",
        f"PartitionName=compute Nodes={_compute(settings)} Default=YES OverSubscribe=EXCLUSIVE {times}",
        f"PartitionName=quantum Nodes=q1 {times}",
    ]


def _compute(settings: TestbedSettings) -> str:
    return f"c[1-{settings.nodes}]" if settings.nodes > 1 else "c1"


def _nodes(settings: TestbedSettings, ports: Ports, host: str, address: str) -> list[str]:
    lines = []
    for name, port in zip(settings.node_names, ports.slurmd, strict=True):
        quantum = name == "q1"  # every job with a share needs a CPU there
        cpus = max(settings.cpus, settings.vqpus) if quantum else settings.cpus
        gres = f" Gres=qpu:{settings.vqpus}" if quantum else ""
        place = f"NodeHostname={host} NodeAddr={address} Port={port}"
        lines.append(f"NodeName={name} {place} CPUs={cpus} RealMemory=4000{gres} State=UNKNOWN")
    return lines


def slurmdbd_conf(directory: Path, settings: TestbedSettings, ports: Ports) -> str:
    """`slurmdbd.conf`: accounting, kept by a MariaDB on a unix socket."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={directory}/run/munge.sock",
        f"DbdHost={socket.gethostname().partition('.')[0]}",
        f"DbdAddr={loopback()}",
        f"DbdPort={ports.slurmdbd}",
        f"SlurmUser={user_name()}",
        f"LogFile={directory}/log/slurmdbd.log",
        f"PidFile={directory}/run/slurmdbd.pid",
        *_plugins(settings),
        *(["CommunicationParameters=NoInAddrAny"] if only_loopback() else []),
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        "StorageLoc=slurm_acct_db",
        "",
    ]
    return "\n".join(lines)


def broker_toml(directory: Path, settings: TestbedSettings) -> str:
    """`broker.toml`: one emulated device, named as the gres and with as many shares."""
    lines = [
        f"listen = [{json.dumps(f'unix:{directory}/run/broker.sock')}]",
        "socket_mode = 0o600",
        f"store = {json.dumps(str(directory / 'broker' / 'broker.db'))}",
        f"devices = [{{kind = '{settings.device}', name = 'qpu'}}]",
        f"promise = {{shares = {settings.vqpus}}}",
        f"auth = {{methods = ['peer', 'munge'], admins = [{json.dumps(user_name())}], "
        f"munge_socket = {json.dumps(f'{directory}/run/munge.sock')}}}",
        f"hook = {json.dumps([*THIS_QLOOM, 'slurm', 'device-state', '--quiet'])}",
        "poll_s = 1.0",
        "",
    ]
    return "\n".join(lines)


def user_name() -> str:
    """The user who runs the testbed."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def loopback() -> str:
    """The loopback address that this machine's name resolves to, or the usual one."""
    address = _address_of_host()
    return address if address.startswith("127.") else "127.0.0.1"


def only_loopback() -> bool:
    """Whether Slurm can listen on the loopback address alone: it binds to what the machine's name resolves to."""
    return _address_of_host().startswith("127.")


def _address_of_host() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""
