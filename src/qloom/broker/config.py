"""`broker.toml`: where the broker listens, what it keeps, which devices it has, and who may use them."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from qloom.broker.config_parts import (
    AuthPart,
    ConfigPart,
    DoorPart,
    LimitsPart,
    Positive,
    ProjectPart,
    PromisePart,
    SlurmPart,
)
from qloom.broker.queue.lines import DeviceSpec, shares_for
from qloom.broker.queue.policies import POLICIES
from qloom.broker.slurm import Account
from qloom.device import Description, Device
from qloom.errors import InputError
from qloom.journal.home import home
from qloom.private import runtime_directory

MakeDevice = Callable[[Mapping[str, Any]], Device]


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
    doors: dict[str, DoorPart] = Field(
        default={},
        description="`[doors.NAME]`, one table for each [door](../guides/doors.md) that is open; none if not given.",
    )
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
        if self.doors and "token" not in self.auth.methods:
            raise ValueError("doors: vendors' clients show tokens, and auth.methods does not have them")
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
