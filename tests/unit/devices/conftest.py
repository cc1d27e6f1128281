"""A vendor whose QRMI is a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qloom.devices.factory import make_device
from tests.unit import qrmi_standin


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    monkeypatch.setenv("QRMI_STANDIN", str(tmp_path / "vendor"))
    monkeypatch.setenv("PYTHONPATH", str(Path(qrmi_standin.__file__).parent))
    monkeypatch.syspath_prepend(str(Path(qrmi_standin.__file__).parent))
    return Vendor(tmp_path)


class Vendor:
    def __init__(self, folder):
        self.folder = folder / "vendor" / "machine"
        self.folder.mkdir(parents=True)
        self.tokens = folder / "tokens.jsonl"
        self.config = {"kind": "qrmi", "name": "vendor", "resource": "machine", "type": "pasqal-cloud",
                       "poll_s": 0.05, "tokens": str(self.tokens),
                       "module": "qrmi_standin", "pause_s": 0.01}  # fmt: skip

    def device(self, **options):
        return make_device({**self.config, **options})

    def faults(self, **counts):
        (self.folder / "faults.json").write_text(json.dumps(counts))

    def says(self, **parts):
        for name, part in parts.items():
            (self.folder / f"{name}.json").write_text(json.dumps(part))

    def tasks(self):
        return sorted(path.stem for path in self.folder.glob("task-*.json"))
