"""The digests and rows of all cells, as they are kept in this folder."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
DIGESTS = HERE / "digests.json"
ROWS = HERE / "rows.json.xz"  # what the digests are of, to say what has changed


def digest_of(rows: Sequence[str]) -> str:
    """What stands for the rows of a cell."""
    return hashlib.blake2b("\n".join(rows).encode(), digest_size=12).hexdigest()


def kept_digests() -> dict[str, str]:
    """By cell."""
    digests: dict[str, str] = json.loads(DIGESTS.read_text())
    return digests


def kept_rows() -> dict[str, list[str]]:
    """By cell."""
    rows: dict[str, list[str]] = json.loads(lzma.decompress(ROWS.read_bytes()))
    return rows


def keep(cells: Mapping[str, list[str]]) -> None:
    """Replace what is kept."""
    DIGESTS.write_text(json.dumps({name: digest_of(cells[name]) for name in sorted(cells)}, indent=0) + "\n")
    text = json.dumps(dict(sorted(cells.items())), separators=(",", ":"))
    ROWS.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
