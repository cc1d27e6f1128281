"""The circumstances of a campaign: enough to judge its figures, and to make them again."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from importlib import metadata
from typing import Any

from qloom.campaign.cells import calibrated_of
from qloom.campaign.model import QUIRKS
from qloom.campaign.plans import SEED_DISTANCE
from qloom.campaign.store import Asked
from qloom.version import __version__


def lock_hash() -> str:
    """A hash over name and version of everything that is installed beside qloom."""
    names = {f"{found.metadata['Name']}=={found.version}".lower(): True for found in metadata.distributions()}
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def manifest_of(asked: Asked) -> dict[str, Any]:
    """Version, lock hash, seeds, calibration, quirks, conditions and host."""
    campaign, as_in_file = asked.campaign(), "as in the campaign file"
    return {
        "campaign": asked.name,
        "qloom": __version__,
        "lock_sha256": lock_hash(),
        "python": platform.python_version(),
        "seeds": [campaign.seed + SEED_DISTANCE * repeat for repeat in range(campaign.repeats)],
        "calibrated_to": asked.part or as_in_file,
        "calibration": {name: entry.value for name, entry in calibrated_of(campaign).items()},
        "quirks": {name: QUIRKS[name] for name in campaign.quirks},
        "world": asked.conditions.world or as_in_file,
        "scale": asked.conditions.scale,
        "overheads": as_in_file if asked.conditions.overheads is None else dict(asked.conditions.overheads),
        "host": platform.node(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
