"""`broker.toml`: where the broker listens, what it keeps, which devices it has, and who may use them."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from qloom.broker.queue.policies import POLICIES
from qloom.broker.queue.promise import DeviceSpec, shares_for
from qloom.broker.slurm import Account
from qloom.device import Description, Device
from qloom.errors import InputError
from qloom.journal.home import home
from qloom.private import runtime_directory

MakeDevice = Callable[[Mapping[str, Any]], Device]

Count = Annotated[int, Field(ge=0)]
OneOrMore = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ConfigPart(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProjectPart(ConfigPart):
    """`[projects.NAME]`: a project, its members, its share and its limits."""

    weight: Positive = Field(default=1.0, description="Its share of a device under the policy `fair`.")
    budget_s: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="QPU-seconds that it may use altogether; without limit if not given."
    )
    max_tasks: Count | None = Field(default=None, description="Tasks that it may have queued or running at once.")
    max_sessions: Count | None = Field(default=None, description="Sessions that it may have waiting or open at once.")
    max_whole: Count | None = Field(
        default=None, description="Sessions for a whole device that it may have waiting or open at once; 0 is none."
    )
    whole_idle_s: Positive | None = Field(default=None, description="`limits.whole_idle_s`, for this project.")
    whole_hold_s: Positive | None = Field(default=None, description="`limits.whole_hold_s`, for this project.")
    max_priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0, description="The highest priority of its tasks; administrators may give any."
    )
    members: tuple[str, ...] | None = Field(
        default=None,
        description='User names of its members; `"*"` is everybody. Without a list, whoever has a token for it.',
    )


class PromisePart(ConfigPart):
    """`[promise]`, and `[promises.NAME]` for one device: what a shared device promises to sessions."""

    longest_s: Positive | None = Field(
        default=None,
        description="The longest task that is admitted, by its expected seconds. Needed to promise a wait.",
    )
    limit_s: Positive | None = Field(
        default=None, description="Execution is ended after this; `longest_s` if not given."
    )
    outside_limit: Count = Field(
        default=1, description="Tasks from outside any session that may run between two turns of a session."
    )
    retries: Count = Field(default=0, description="Further attempts after a fault of the device.")
    promised_wait_s: Positive | None = Field(
        default=None, description="The longest wait to promise; the number of shares follows from it."
    )
    shares: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=8, description="vQPUs that are offered if `promised_wait_s` is not given."
    )


class LimitsPart(ConfigPart):
    """`[limits]`: what one request, one user and one peer may ask for, and how long things are kept.

    A peer is a user at the other end of the unix socket, or an address: the users of a login node are one peer there.
    """

    max_bytes: Annotated[int, Field(ge=1024, le=2**30)] = Field(
        default=10 * 2**20,
        description="Bytes of one task; a larger one is answered with 413. All other requests have 64 KiB.",
    )
    requests_per_s: Positive = Field(default=200.0, description="Requests a second of one user, on average.")
    burst: Positive = Field(default=1000.0, description="Requests that one user may send at once after a quiet time.")
    requests_at_once: OneOrMore = Field(
        default=1000, description="Requests of one user that are being answered, also those that wait for a task."
    )
    streams: OneOrMore = Field(default=32, description="Streams of events that one user may have open.")
    body_bytes: OneOrMore = Field(
        default=256 * 2**20, description="Bytes of all requests that are being read or answered; others wait in line."
    )
    user_body_bytes: OneOrMore = Field(default=64 * 2**20, description="The same, of one user.")
    failures_per_s: Positive = Field(
        default=5.0, description="Wrong credentials a second of one peer that are answered with 401; more with 429."
    )
    failures_burst: Positive = Field(default=100.0, description="Wrong credentials of one peer after a quiet time.")
    connections: OneOrMore = Field(
        default=4000, description="Open connections; fewer if the process may not open as many files."
    )
    peer_connections: OneOrMore = Field(
        default=1000, description="Connections of one peer that is no trusted proxy; at most three quarters of all."
    )
    reserved_files: Count = Field(
        default=100, description="Open files that are kept for devices, the store and commands."
    )
    header_s: Positive = Field(default=10.0, description="Seconds for the header of a request to arrive.")
    body_s: Positive = Field(
        default=60.0, description="Seconds for its body, including the wait for room in `body_bytes`."
    )
    idle_s: Positive = Field(default=5.0, description="Seconds that a connection may wait for its next request.")
    stalled_s: Positive = Field(
        default=30.0, description="Seconds that a client may take to read the next 64 KiB of an answer."
    )
    max_jobs: Count | None = Field(
        default=None, description="Hybrid jobs that may have sessions or tasks at once, over all projects."
    )
    check_processes: Annotated[int, Field(ge=1, le=64)] = Field(
        default=2, description="Processes that read and check large payloads beside the broker."
    )
    check_memory_mib: Annotated[int, Field(ge=256)] = Field(
        default=1024, description="Address space of each of them, in MiB; a payload that takes more is refused."
    )
    check_cpu_s: Positive = Field(
        default=30.0, description="CPU seconds for one payload; one that takes more is refused."
    )
    session_idle_s: Positive = Field(default=3600.0, description="A session that nobody uses is closed after this.")
    whole_idle_s: Positive = Field(
        default=3600.0,
        description="A session that holds a whole device and has no task is closed after this, asked for or not.",
    )
    whole_hold_s: Positive = Field(
        default=86400.0, description="A session that holds a whole device is closed after this, in use or not."
    )
    keep_results_s: Positive = Field(
        default=7 * 86400.0, description="How long results can be read, in seconds that the broker has run."
    )


class AuthPart(ConfigPart):
    """`[auth]`: how callers show who they are."""

    methods: tuple[Literal["token", "munge", "peer", "none"], ...] = Field(
        default=("token", "peer"), description="Credentials that are accepted."
    )
    admins: tuple[str, ...] = Field(
        default=(),
        description="User names of administrators. The broker's own user is one too, root only if it is named.",
    )
    proxies: tuple[str, ...] = Field(
        default=(),
        description="Users, user ids, addresses or networks of proxies that may name the user whom they serve.",
    )
    proxy_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = Field(
        default="X-Remote-User", description="The header in which they do."
    )
    munge_socket: str | None = Field(default=None, description="The socket of munged, if it is not the usual one.")
    tokens: Path | None = Field(
        default=None, description="The file with the hashes of tokens; `tokens.json` beside the store if not given."
    )
    token_days: Annotated[float, Field(ge=0, le=36500)] = Field(
        default=90.0, description="Days that a new token counts, unless `--days` says otherwise; 0: for ever."
    )


class SlurmPart(ConfigPart):
    """`[slurm]`: what is asked of Slurm."""

    projects: bool = Field(
        default=False, description="Accounts are projects, their users the members, their fairshare the weights."
    )
    require_job: bool = Field(
        default=False, description="A session needs a running job of the caller that holds as many shares."
    )
    require_job_for_tasks: bool = Field(
        default=False,
        description="Every task outside a session needs a job that holds a share, too. Implies `require_job`.",
    )
    gres: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(:[A-Za-z0-9_-]+)?$")] = Field(
        default="qpu", description="The gres that shares are counted in."
    )
    check_s: Positive = Field(
        default=30.0, description="Seconds between two checks that the jobs of open sessions still hold their shares."
    )
    confirm_s: Positive = Field(
        default=60.0,
        description="Seconds that a share must be missing until its session is closed; none if its job has ended.",
    )
    refresh_s: Positive = Field(default=300.0, description="Seconds between two readings of Slurm's accounts.")
    timeout_s: Positive = Field(default=10.0, description="Seconds that one command of Slurm may take.")


class BrokerConfig(ConfigPart):
    """The keys before the first table."""

    listen: tuple[str, ...] = Field(
        default=(), description="Addresses: `unix:PATH` or `HOST:PORT`; a unix socket of the user's own if not given."
    )
    socket_mode: Annotated[int, Field(ge=0, le=0o777)] = Field(
        default=0o666,
        description="Mode of the unix sockets: who may connect. Each caller is known by user id anyway.",
    )
    store: Path | None = Field(
        default=None,
        description="The file that everything is kept in, on a local disk; in qloom's home if not given.",
    )
    policy: str = Field(
        default="fifo", description=f"The order of tasks: {', '.join(f'`{name}`' for name in POLICIES)}."
    )
    devices: tuple[dict[str, Any], ...] = Field(
        default=({"kind": "annealing", "name": "annealing"},),
        description="`[[devices]]`, one table for each QPU: see [devices](../guides/devices.md).",
    )
    projects: dict[str, ProjectPart] = Field(
        default={"default": ProjectPart(members=("*",))},
        description="`[projects.NAME]`, one table for each project; one of everybody if not given.",
    )
    promise: PromisePart = Field(default=PromisePart(), description="`[promise]`, of all devices.")
    promises: dict[str, PromisePart] = Field(
        default={}, description="`[promises.NAME]`, of the device of that name instead of `[promise]`."
    )
    limits: LimitsPart = Field(default=LimitsPart(), description="`[limits]`.")
    auth: AuthPart = Field(default=AuthPart(), description="`[auth]`.")
    slurm: SlurmPart = Field(default=SlurmPart(), description="`[slurm]`.")
    hook: tuple[str, ...] = Field(
        default=(),
        description="A command and its arguments, run with `QLOOM_DEVICE` and `QLOOM_DEVICE_STATE` set when the "
        "state of a device changes.",
    )
    half_life_s: Positive = Field(default=7 * 86400.0, description="Half-life of past usage under the policy `fair`.")
    poll_s: Positive = Field(default=5.0, description="Seconds between two questions to a device for its state.")

    @model_validator(mode="after")
    def _fits(self) -> BrokerConfig:
        if self.policy not in POLICIES:
            raise ValueError(f"policy: there is none called {self.policy!r}, choose one of {', '.join(POLICIES)}")
        if not self.devices:
            raise ValueError("devices: a broker needs at least one")
        for address in self.addresses:
            if not is_local(address) and ("none" in self.auth.methods or not _proves(self.auth.methods)):
                raise ValueError(
                    f"listen: {address} can be reached from elsewhere, so callers must prove who they are"
                )
        return self

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the broker listens."""
        return self.listen or (default_address(),)

    @property
    def store_path(self) -> Path:
        """Where everything is kept."""
        return self.store or home() / "broker" / "broker.db"

    @property
    def tokens_path(self) -> Path:
        """Where the hashes of tokens are kept."""
        return self.auth.tokens or self.store_path.with_name("tokens.json")

    def projects_with(self, accounts: Mapping[str, Account]) -> dict[str, ProjectPart]:
        """The projects, with Slurm's accounts among them: what the config says of one itself goes before."""
        own = {} if self.slurm.projects and "projects" not in self.model_fields_set else self.projects
        made: dict[str, ProjectPart] = dict(own)
        for name, account in accounts.items():
            part = own.get(name, ProjectPart())
            weight = part.weight if "weight" in part.model_fields_set else account.weight
            members = tuple(dict.fromkeys((*(part.members or ()), *account.members)))
            made[name] = part.model_copy(update={"weight": weight, "members": members})
        return made

    def spec(self, device: Description) -> DeviceSpec:
        """What the queue core has to know of a device."""
        part = self.promises.get(device.name, self.promise)
        names = ("shares", "outside_limit", "longest_s", "retries", "limit_s")
        given = {name: getattr(part, name) for name in names}
        spec = DeviceSpec(device.name, lanes=device.lanes, policy=self.policy, bounded=device.bounded, **given)
        promised_s = self.promised_wait_s(device)
        return spec if promised_s is None else replace(spec, shares=shares_for(spec, promised_s))

    def promised_wait_s(self, device: Description) -> float | None:
        """What the site has promised for a device. What it says of all devices is not meant for one that cannot."""
        if device.name not in self.promises and not device.bounded:
            return None
        return self.promises.get(device.name, self.promise).promised_wait_s


def default_address() -> str:
    """A unix socket of the user's own."""
    directory = runtime_directory()
    return f"unix:{directory / 'qloom-broker.sock' if directory is not None else home() / 'broker' / 'broker.sock'}"


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address."""
    if address.startswith("unix:"):
        return True
    host = split_address(address)[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def split_address(address: str) -> tuple[str, int]:
    """`127.0.0.1:7117` or `[::1]:7117`."""
    host, colon, port = address.rpartition(":")
    is_host = bool(host) and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    if not colon or not port.isdigit() or not 0 <= int(port) < 65536 or not is_host:
        raise ValueError(f"listen: {address!r} is neither unix:PATH nor HOST:PORT")
    return host.strip("[]"), int(port)


def _proves(methods: tuple[str, ...]) -> bool:
    return "token" in methods or "munge" in methods


def read_config(path: Path | None) -> BrokerConfig:
    """The config in a file, or the usual one."""
    if path is None:
        return config_from({}, "the config")
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read the config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    return config_from(values, str(path))


def devices_of(config: BrokerConfig, make_device: MakeDevice) -> list[Device]:
    """The devices that a config describes, none of them started."""
    devices = [make_device(values) for values in config.devices]
    names = [device.description.name for device in devices]
    if len(names) != len(dict.fromkeys(names)):
        raise InputError(f"two devices have the same name: {', '.join(names)}")
    for name in config.promises:
        if name not in names:
            raise InputError(f"promises.{name}: there is no such device", hint=f"there is: {', '.join(names)}")
    return devices


def config_from(values: dict[str, Any], origin: str) -> BrokerConfig:
    """A checked config; errors name the first value that is wrong."""
    try:
        return BrokerConfig.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(step) for step in problem["loc"])
        what = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            raise InputError(f"{origin}: {place} is not a known key") from None
        raise InputError(f"{origin}: {place + ': ' if place else ''}{what[:1].lower()}{what[1:]}") from None
