"""What an elastic program and its root say to each other: small files in a directory that both see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qloom.journal.results import write_atomically

DIRECTORY, NODES = "QLOOM_ELASTIC", "QLOOM_ELASTIC_NODES"  # variables by which ranks find their root
WISH = "wish.json"  # rank 0: {"number", "nodes"}
# The root: {"nodes": how many to go on with, "wish": the last one it has settled, "least", "most",
#            "brought": how many were wished for when these ranks were started}
OFFER = "offer.json"
ASKED = "asked.json"  # the resource manager: {"nodes"}
LEFT = "left.json"  # rank 0: the state is saved and the ranks end, to go on elsewhere
STATE = "state"


def read(directory: Path, name: str) -> dict[str, Any]:
    """What a note says; empty if there is none."""
    try:
        content: dict[str, Any] = json.loads((directory / name).read_bytes())
        return content
    except FileNotFoundError:
        return {}


def write(directory: Path, name: str, **content: Any) -> None:
    """Leave a note in the place of the one before."""
    write_atomically(directory / name, json.dumps(content).encode())


def remove(directory: Path, *names: str) -> None:
    """Take notes away."""
    for name in names:
        (directory / name).unlink(missing_ok=True)
