"""What a kept report says of how it was made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qloom.cli.main import app
from qloom.lab.campaign import formats
from qloom.lab.campaign.manifest import commit
from qloom.lab.campaign.rows import read_results
from tests.campaign.helpers import carried_out, results, write

ROOT = Path(__file__).resolve().parents[2]
FEW = ("command", "commit", "qloom", "python")  # what every kept page says
RESULTS = sorted((ROOT / "docs" / "results").glob("*.md"))


def report(kind: str) -> str:
    return CliRunner().invoke(app, ["campaign", "report", "small", "-f", kind]).stdout


def test_every_report_says_how_it_was_made(tmp_path):
    write(tmp_path)
    words = ["campaign", "run", "small.toml", "--quiet", "--scale", "1/2"]
    subprocess.run([sys.executable, "-m", "qloom", *words], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    manifest = json.loads(report("json"))["manifest"]
    assert manifest["command"] == "qloom campaign run small.toml --quiet --scale 1/2"
    assert (manifest["repeats"], manifest["seeds"]) == (3, [1, 1001, 2001])
    assert manifest["commit"] == [commit()]
    for kind in ("text", "md", "html", "manifest"):
        text = "".join(report(kind).split())
        for name, value in manifest.items():
            if name in ("command", "repeats", "commit", "python", "lock_sha256", "machine", "created"):
                shown = value[0] if isinstance(value, list) else str(value)
                assert "".join(shown.split()) in text, f"{kind}: {name}"


def test_the_commit_is_that_of_the_checkout():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert commit().split(" ", 1)[0] == head.strip()


def test_a_campaign_that_went_on_with_other_code_names_both(tmp_path, monkeypatch):
    text = write(tmp_path)
    store = carried_out(text)
    first = store.directory / "cells.jsonl"
    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join(lines[:-3]))
    monkeypatch.setattr("qloom.lab.campaign.execute.commit", lambda: "another")
    assert read_results(carried_out(text)).manifest["commit"] == [commit(), "another"]
    assert "cells were run with 2 versions of the code" in "\n".join(formats.remarks(results(text)))


def test_asking_again_for_what_is_done_changes_nothing(tmp_path, monkeypatch):
    text = write(tmp_path)
    before = results(text).manifest
    monkeypatch.setattr("qloom.lab.campaign.execute.commit", lambda: "another")
    assert results(text).manifest == before


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_kept_pages_carry_their_manifest(page):
    _, _, section = page.read_text().partition("\n## Manifest\n")
    entries = dict(re.findall(r"^- (\w+): (.+)$", section, re.MULTILINE))
    assert [name for name in FEW if name not in entries] == []
