"""The tables of `broker.toml`: projects, promises, limits, who may come in, and what is asked of Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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


class DoorPart(ConfigPart):
    """`[doors.NAME]`: a vendor's protocol, spoken below the path `/doors/NAME`."""

    devices: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="Names of the devices that its clients see; no others can be reached through it."
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
