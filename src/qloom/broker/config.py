"""`broker.toml`: where the broker listens, what it keeps, which devices it has, and who may use them."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from qloom.broker.devices.base import Device
from qloom.broker.policies import POLICIES
from qloom.broker.promise import DeviceSpec, shares_for
from qloom.broker.slurm import Account
from qloom.errors import InputError
from qloom.journal.home import home

MakeDevice = Callable[[Mapping[str, Any]], Device]

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Part(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProjectPart(Part):
    """A project: its members (`"*"` is everybody), its share and its limits."""

    weight: Positive = 1.0
    budget_s: Annotated[float, Field(ge=0)] | None = None
    max_tasks: Count | None = None
    max_sessions: Count | None = None
    members: tuple[str, ...] = ()


class PromisePart(Part):
    """What a shared device promises; see the guide. A device can have its own in `[promise.NAME]`."""

    longest_s: Positive | None = None  # the longest task that is admitted
    limit_s: Positive | None = None  # execution is ended after that; longest_s, if not said
    outside_limit: Count = 1  # tasks from outside any session that may go before a session's
    retries: Count = 0
    promised_wait_s: Positive | None = None  # the number of shares follows from it
    shares: Annotated[int, Field(ge=1, le=10_000)] = 8  # used if no wait is promised


class LimitsPart(Part):
    """What one request and one user may ask for."""

    max_bytes: Annotated[int, Field(ge=1024, le=2**30)] = 10 * 2**20
    requests_per_s: Positive = 200.0
    burst: Positive = 1000.0
    max_jobs: Count | None = None  # hybrid jobs at once, over all projects
    session_idle_s: Positive = 3600.0
    keep_results_s: Positive = 7 * 86400.0


class AuthPart(Part):
    """How callers show who they are."""

    methods: tuple[Literal["token", "munge", "peer", "none"], ...] = ("token", "peer")
    admins: tuple[str, ...] = ()
    munge_socket: str | None = None
    tokens: Path | None = None  # beside the store, if not said


class SlurmPart(Part):
    """What is asked of Slurm."""

    projects: bool = False  # its accounts are projects, its users their members, its fairshare their weights
    require_job: bool = False  # a session needs a running job of the caller that holds as many shares
    gres: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(:[A-Za-z0-9_-]+)?$")] = "qpu"
    check_s: Positive = 30.0  # how often sessions are closed whose job holds their share no longer
    refresh_s: Positive = 300.0
    timeout_s: Positive = 10.0  # of one command


class BrokerConfig(Part):
    """The whole file."""

    listen: tuple[str, ...] = ()  # "unix:/run/qloom/broker.sock" or "127.0.0.1:7117"
    socket_mode: Annotated[int, Field(ge=0, le=0o777)] = 0o666  # who may connect: each caller is known by user id
    store: Path | None = None
    policy: str = "fifo"
    devices: tuple[dict[str, Any], ...] = ({"kind": "annealing", "name": "annealing"},)
    projects: dict[str, ProjectPart] = {"default": ProjectPart(members=("*",))}
    promise: PromisePart = PromisePart()
    promises: dict[str, PromisePart] = {}  # of single devices, by name
    limits: LimitsPart = LimitsPart()
    auth: AuthPart = AuthPart()
    slurm: SlurmPart = SlurmPart()
    hook: tuple[str, ...] = ()  # a command, run when the state of a device changes
    half_life_s: Positive = 7 * 86400.0  # of usage, under the policy `fair`
    poll_s: Positive = 5.0

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
            members = tuple(dict.fromkeys((*part.members, *account.members)))
            made[name] = part.model_copy(update={"weight": weight, "members": members})
        return made

    def spec(self, device: str, lanes: int) -> DeviceSpec:
        """What the queue core has to know of a device."""
        part = self.promises.get(device, self.promise)
        names = ("shares", "outside_limit", "longest_s", "retries", "limit_s")
        given = {name: getattr(part, name) for name in names}
        spec = DeviceSpec(device, lanes=lanes, policy=self.policy, **given)
        return spec if part.promised_wait_s is None else replace(spec, shares=shares_for(spec, part.promised_wait_s))

    def promised_wait_s(self, device: str) -> float | None:
        """What the site has promised for a device."""
        return self.promises.get(device, self.promise).promised_wait_s


def default_address() -> str:
    """A unix socket of the user's own."""
    directory = os.environ.get("XDG_RUNTIME_DIR")
    return f"unix:{Path(directory) / 'qloom-broker.sock' if directory else home() / 'broker' / 'broker.sock'}"


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
    if not colon or not port.isdigit() or not 0 <= int(port) < 65536 or not host:
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
