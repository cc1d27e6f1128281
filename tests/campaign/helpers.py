"""What the tests of campaigns share."""

from __future__ import annotations

from pathlib import Path

from qloom.lab.campaign.execute import carry_out
from qloom.lab.campaign.read import read_raw
from qloom.lab.campaign.rows import Results, read_results
from qloom.lab.campaign.store import CampaignRun, CampaignStore

SMALL = """
title = "A small campaign"
baseline = "offload"
repeats = 3

[base.parameters]
iterations = 2
classical_s = [5, 1]
score_s = 2
quantum_s = 4
jitter = 0.3

[matrix]
jobs = [1, 2]
strategy = ["offload", "malleable"]
"""


def write(directory: Path, text: str = SMALL, name: str = "small.toml") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def carried_out(text: str, **more: object) -> CampaignStore:
    name, raw = read_raw(text)
    return carry_out(CampaignRun(name, raw, **more), lambda *_: None)  # type: ignore[arg-type]


def results(text: str, **more: object) -> Results:
    return read_results(carried_out(text, **more))
