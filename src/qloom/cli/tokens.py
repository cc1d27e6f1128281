"""`qloom broker token`, `tokens` and `revoke`: who may ask a broker from elsewhere, for what, and until when."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from qloom.cli.tables import Json, Quiet, table
from qloom.errors import InputError

if TYPE_CHECKING:
    from qloom.broker.auth.tokens import TokenFile
    from qloom.broker.config import BrokerConfig

LONGEST_DAYS = 36500

ConfigFile = Annotated[Path | None, typer.Option("--config", help="The config of the broker: broker.toml.")]


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.command()(token)
    parent.command("tokens")(list_tokens)
    parent.command()(revoke)


def token(
    name: Annotated[str, typer.Argument(help="The user that the token is for.")],
    project: Annotated[list[str], typer.Option("--project", help="A project that it counts for. Repeatable.")] = [],  # noqa: B006
    scope: Annotated[
        str, typer.Option(help="What it allows: read, submit, or admin (drain, resume, reconcile).")
    ] = "submit",
    admin: Annotated[bool, typer.Option("--admin", help="The same as --scope admin.")] = False,
    days: Annotated[
        float | None, typer.Option(help="Days until it expires; 0: never. [default: as the config says]")
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke all tokens of this user.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new, private file for the token.")] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make a token. It is shown once: only its hash is kept. A running broker takes it at once."""
    from qloom.broker.auth.tokens import scope_named
    from qloom.broker.config import read_config

    settings = read_config(config)
    kept = _tokens(settings)
    if revoke:
        count = kept.revoke(name)
        print(json.dumps({"user": name, "revoked": count}) if as_json else f"{count} revoked")
        return
    for one in project:
        _require_member(settings, name, one, "" if config else "; or name the broker's config: --config broker.toml")
    given = scope_named("admin" if admin else scope)
    if not project and given != "admin":
        raise InputError("a token needs a project", hint="--project NAME, or --scope admin")
    life_days = settings.auth.token_days if days is None else days
    if not 0 <= life_days <= LONGEST_DAYS:
        raise InputError(f"a token counts for 0 to {LONGEST_DAYS} days, not {life_days:g}", hint="0: for ever")
    life_s = life_days * 86400 or None
    made: dict[str, Any] = {"user": name, "projects": project, "scope": given, "days": life_days or None}
    if output is None:
        secret = kept.add(name, project, given, life_s)
        print(json.dumps({**made, "token": secret}) if as_json else secret)
        return
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from None
    with os.fdopen(file, "w") as private:
        private.write(kept.add(name, project, given, life_s) + "\n")
    print(json.dumps({**made, "file": str(output)}) if as_json else output)


def list_tokens(config: ConfigFile = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """List the tokens: their users, what they allow, and until when. The tokens themselves are not kept."""
    from qloom.broker.config import read_config

    kept = _tokens(read_config(config))
    used = kept.used_days()
    rows = [
        {
            "id": entry.id,
            "user": entry.user,
            "projects": list(entry.projects),
            "scope": entry.scope,
            "created": _moment(entry.created_s),
            "expires": "never" if entry.expires_s is None else _moment(entry.expires_s),
            "expired": entry.is_over(),
            "used": used.get(entry.id),
        }
        for entry in kept.entries()
    ]
    if as_json:
        print(json.dumps(rows))
    elif quiet:
        for row in rows:
            print(row["id"])
    elif not rows:
        print("there are no tokens")
    else:
        shown = [{**row, "expires": "expired" if row["expired"] else row["expires"]} for row in rows]
        Console().print(table(("id", "user", "projects", "scope", "created", "expires", "used"), shown))


def revoke(
    id: Annotated[list[str], typer.Argument(help="Ids of tokens, as `qloom broker tokens` lists them.")],
    config: ConfigFile = None,
    quiet: Quiet = False,
) -> None:
    """Revoke single tokens. A running broker closes what is open with them."""
    from qloom.broker.config import read_config

    kept = _tokens(read_config(config))
    for one in id:
        kept.revoke_one(one)
        if not quiet:
            print(f"{one} revoked")


def _tokens(settings: BrokerConfig) -> TokenFile:
    from qloom.broker.auth.tokens import TokenFile

    return TokenFile(settings.tokens_path, settings.store_path)


def _require_member(settings: BrokerConfig, user: str, project: str, other: str) -> None:
    """Refuse a token that would be worth nothing; where Slurm has the projects, the broker asks Slurm."""
    if settings.slurm.projects:
        return
    if project not in settings.projects:
        raise InputError(f"unknown project {project}", hint=f"choose one of {', '.join(settings.projects)}{other}")
    members = settings.projects[project].members
    if members is not None and user not in members and "*" not in members:
        raise InputError(f"user {user} is not a member of project {project}", hint="add them to its members first")


def _moment(since_1970_s: float | None) -> str | None:
    return None if since_1970_s is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(since_1970_s))
