"""A fresh copy of the checkout, as a newcomer has it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fresh_copy(folder: Path, *parts: str) -> Path:
    """What git knows, or would add: no environment, no build, no cache. All of it, or some parts."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z", *parts]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder
