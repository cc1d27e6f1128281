"""A timeline as a file: svg, png, or a page that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qloom.errors import InputError
from qloom.views.page import account_tables, write_page, write_view
from qloom.views.picture import picture
from qloom.views.rows import Run

__all__ = ["Run", "draw_timeline"]


def draw_timeline(runs: Sequence[Run], path: Path, *, title: str = "qloom timeline") -> None:
    """Draw runs, each `(name, events)`, under one another on one time axis; the suffix says what kind of file."""
    if not runs:
        raise InputError("there is no run to draw", hint="make one with: qloom run PROGRAM")
    match path.suffix.lower():
        case ".svg" | ".png" as suffix:
            write_view(path, picture(runs, suffix[1:]))
        case ".html" | ".htm":
            write_page(title, account_tables(runs), runs, path)
        case suffix:
            raise InputError(f"cannot draw a {suffix or 'file without a suffix'}", hint="use .svg, .png or .html")
