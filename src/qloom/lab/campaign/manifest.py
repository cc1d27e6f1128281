"""The circumstances of a measurement: enough to judge its figures, and to make them again."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from qloom.lab.campaign.cells import calibrated_of
from qloom.lab.campaign.model import QUIRKS
from qloom.lab.campaign.plans import SEED_DISTANCE
from qloom.lab.campaign.store import CampaignRun
from qloom.version import __version__

TIMEOUT_S = 10


def lock_hash() -> str:
    """A hash over name and version of everything that is installed beside qloom."""
    names = {f"{found.metadata['Name']}=={found.version}".lower(): True for found in metadata.distributions()}
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def commit() -> str:
    """The commit of the checkout that this code is part of, and whether files differ from it."""
    here = Path(__file__)
    if _output("git", "-C", str(here.parent), "ls-files", "--error-unmatch", here.name) is None:
        return "unknown: not in a checkout"
    described = _output(
        "git", "-C", str(here.parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
    )
    return (described or "unknown").replace("-dirty", " with changes")


def _output(*command: str) -> str | None:
    """What a command prints, or None if there is no such command or it fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def circumstances() -> dict[str, Any]:
    """What ran, with which versions, where and when."""
    is_qloom = sys.argv[0].endswith(("qloom", "qloom/__main__.py"))
    words = ["qloom", *sys.argv[1:]] if is_qloom else ["python", *sys.orig_argv[1:]]
    return {
        "command": shlex.join(words),
        "commit": commit(),
        "qloom": __version__,
        "lock_sha256": lock_hash(),
        "python": platform.python_version(),
        "slurm": _output("sinfo", "--version") or "none",
        "host": platform.node(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def manifest_of(asked: CampaignRun) -> dict[str, Any]:
    """The circumstances, with seeds, calibration, quirks and conditions of a campaign."""
    campaign, as_in_file = asked.campaign(), "as in the campaign file"
    return {
        **circumstances(),
        "campaign": asked.name,
        "repeats": campaign.repeats,
        "seeds": [campaign.seed + SEED_DISTANCE * repeat for repeat in range(campaign.repeats)],
        "calibrated_to": asked.part or as_in_file,
        "calibration": {name: entry.value for name, entry in calibrated_of(campaign).items()},
        "quirks": {name: QUIRKS[name] for name in campaign.quirks},
        "world": asked.conditions.world or as_in_file,
        "scale": asked.conditions.scale,
        "overheads": as_in_file if asked.conditions.overheads is None else dict(asked.conditions.overheads),
    }


def as_list(manifest: Mapping[str, Any]) -> str:
    """A manifest as a Markdown list, for a page that keeps the figures."""
    return "".join(f"- {name}: {plain(value)}\n" for name, value in manifest.items())


def plain(value: Any) -> str:
    """A value of the manifest in one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key} ({item})" for key, item in value.items()) or "none"
    return ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)
