"""What the service is sent, checked field by field."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from qloom.broker.requests import TaskRequest
from qloom.model import Payload

OPTIONS_BYTES = 64 * 1024  # of one task


def _plain(text: str) -> str:
    """Text that can be stored and shown: no half characters, nothing that moves the cursor."""
    if not text.isprintable():
        raise ValueError("must be printable text")
    return text


def _short(options: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Unlike a body, which is passed on as text, options are handled on the event loop: none may keep it busy."""
    if len(json.dumps(options)) > OPTIONS_BYTES:
        raise ValueError(f"may have {OPTIONS_BYTES} bytes at most; what is large belongs into the body")
    return options


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain)]
SlurmJob = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Form(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class TaskForm(Form):
    """A task: a payload, and where and for whom it is to run."""

    kind: Name = Field(description="What the body is: qubo, openqasm3, pulser, as the device says.")
    body: JsonValue
    shots: int = Field(100, ge=1, le=10**9)
    seconds: Seconds | None = Field(
        None, description="How long it takes, on an emulated device; a vendor's machine takes its own time."
    )
    options: Annotated[dict[str, JsonValue], AfterValidator(_short)] = {}
    device: Name | None = Field(None, description="None: one that takes it, with the least to do.")
    devices: list[Name] = Field(
        [],
        max_length=100,
        description='Several that it may run on, or ["*"] for any that fits: it goes to another while one is away.',
    )
    project: Name | None = None
    session: Name | None = None
    job: Name | None = None
    name: Name = "quantum"
    priority: int = Field(0, ge=-1000, le=1000)
    max_wait_s: Seconds | None = None
    time_limit_s: Seconds | None = None
    key: Name | None = Field(None, description="Idempotency key: the same key never makes a second task.")
    slurm_job: SlurmJob | None = Field(
        None, description="The Slurm job that holds a share of the QPU, where the broker asks for one of every task."
    )

    def request(self) -> TaskRequest:
        """As the broker takes it."""
        given: dict[str, Any] = self.model_dump(exclude={"body"})  # a dump would copy it, value by value
        part = {name: given.pop(name) for name in ("kind", "shots", "seconds", "options")}
        return TaskRequest(Payload(body=self.body, **part), **{**given, "devices": tuple(given["devices"])})


class SessionForm(Form):
    """A hold on a device."""

    device: Name
    hold: Literal["whole", "share"] = "share"
    project: Name | None = None
    job: Name | None = None
    key: Name | None = None
    slurm_job: SlurmJob | None = Field(
        None, description="The Slurm job that holds the share, where the broker asks for one."
    )
    shared: bool = Field(False, description="Whether all members of the project may use it, not only its owner.")


class EvictForm(Form):
    """Why a task or a session is ended."""

    reason: Annotated[str, Field(max_length=500), AfterValidator(_plain)] = Field(
        "", description="The reason that its owner is given."
    )


class SharesForm(Form):
    """How many vQPUs a device is to offer."""

    shares: int = Field(ge=1, le=10_000)


class Problem(BaseModel):
    """What every error looks like."""

    error: str
    message: str
    hint: str | None = None
