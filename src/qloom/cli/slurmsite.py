"""`qloom slurm config` and `device-state`: for those who run a Slurm site with QPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qloom.errors import InputError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the essential.")]


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.command()(config)
    parent.command("device-state")(device_state)


def config(
    qpu: Annotated[list[str], typer.Option("--qpu", help="NAME:SHARES or NAME:SHARES:NODE. Repeatable.")] = [],  # noqa: B006
    licences: Annotated[bool, typer.Option("--licences", help="As licences, not as gres of a node.")] = False,
    broker: Annotated[
        str | None, typer.Option(help="Where jobs find the broker; if not said, on the first QPU's node.")
    ] = None,
    partition: Annotated[str, typer.Option(help="The partition of the QPUs' nodes.")] = "quantum",
    etc: Annotated[str, typer.Option(help="Where Slurm's configuration lies.")] = "/etc/slurm",
    munge_socket: Annotated[str | None, typer.Option(help="Munge's socket, if it is not the usual one.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new directory for the files.")] = None,
    as_json: Json = False,
) -> None:
    """Print the lines that give QPUs to Slurm. For slurm.conf, gres.conf, TaskProlog, and the broker's hook."""
    from qloom.slurm.site_config import parse_qpus, site_files

    files = site_files(
        parse_qpus(qpu), broker=broker, partition=partition, licences=licences, etc=etc, munge_socket=munge_socket
    )
    if output is not None:
        _write(output, files)
    if as_json:
        print(json.dumps(files))
    elif output is None:
        print("\n".join(f"### {name}\n{text}" for name, text in files.items()), end="")


def _write(directory: Path, files: dict[str, str]) -> None:
    try:
        directory.mkdir(parents=True)
        for name, text in files.items():
            (directory / name).write_text(text)
            if text.startswith("#!"):
                (directory / name).chmod(0o755)
    except OSError as error:
        raise InputError(f"cannot make {directory}: {error.strerror}", hint="name a new directory") from None


def device_state(
    device: Annotated[str, typer.Argument(envvar="QLOOM_DEVICE", help="The name of a QPU.")],
    state: Annotated[str, typer.Argument(envvar="QLOOM_DEVICE_STATE", help="idle, busy, drained, calibration, ...")],
    node: Annotated[str | None, typer.Option(help="Its node, if its gres does not tell.")] = None,
    licence: Annotated[
        bool, typer.Option("--licence", help="Reserve its licences instead of draining a node.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Tell Slurm how a QPU is. Away, its node is drained (or its licences reserved) and jobs wait in the queue."""
    from qloom.slurm.device_state import set_device_state

    done = set_device_state(device, state, node=node, licence=licence)
    if not quiet:
        print(done)
