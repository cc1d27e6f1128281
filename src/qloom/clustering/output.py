"""What a run leaves for its user: labels as CSV, a summary as JSON, and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from qloom.clustering.data import Data
from qloom.clustering.overlap import Labels
from qloom.clustering.picture import draw_result


def write_labels(path: Path, labels: Labels) -> None:
    """One label per line, in the order of the points, under the header `cluster`."""
    with path.open("w", encoding="utf-8") as file:
        file.write("cluster\n")
        np.savetxt(file, labels, fmt="%d")


def write_json(path: Path, summary: dict[str, Any]) -> None:
    """A summary, readable by people and programs."""
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def write_all(folder: Path, data: Data, labels: Labels, result: dict[str, Any], plot: str | None) -> list[str]:
    """Write everything a run leaves into a folder; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = ["labels.csv", "summary.json"] + ([f"clusters.{plot}"] if plot else [])
    write_labels(folder / "labels.csv", labels)
    if plot:
        score = "" if result["score"] is None else f", silhouette {result['score']:.3f}"
        title = f"{data.name}: {len(result['sizes'])} clusters{score}"
        draw_result(folder / f"clusters.{plot}", data, labels, title)
    write_json(folder / "summary.json", {**result, "files": files})
    return files
