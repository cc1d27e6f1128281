"""A report as text for a terminal, CSV, JSON or Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from qloom.lab.campaign.cells import calibrated_of
from qloom.lab.campaign.figures import AS_PUBLISHED
from qloom.lab.campaign.manifest import as_list
from qloom.lab.campaign.rows import Results, claims_of, differences_of, report_of, rows_of

Column = tuple[str, str]  # the key of a row, and its heading

TERMINAL = 80
TELLING_SD = 0.01  # published deviations that are smaller take room and say little
WRAPPED = ("claim",)
AS_IT_COUNTS = "as the paper counts"
CLAIM_COLUMNS = [
    ("claim", "claim"),
    ("published_percent", "paper says"),
    ("of_published_table", "its table"),
    (f"{AS_PUBLISHED}percent", "as it counts"),
    ("percent", "honest"),
]
HEADINGS = {
    "wall_s": "wall s",
    "node_s": "node-s",
    "node_s_busy": "node-s busy",
    "qpu_s_held": "QPU-s held",
    "qpu_s_busy": "QPU-s busy",
    "vqpu_s_held": "vQPU-s",
    "node_wait_s": "node wait s",
    "qpu_wait_s": "QPU wait s",
    "spare_node_s": "spare node-s",
    "node_use": "nodes used",
    "qpu_use": "QPU used",
    "cost_node_s": "cost node-s",
    "task_wait_mean_s": "mean wait s",
    "task_wait_max_s": "longest s",
    "hybrid_turnaround_s": "hybrid turnaround s",
    "hybrid_wait_s": "hybrid wait s",
    "hybrid_slowdown": "hybrid slowdown",
    "rigid_wait_s": "rigid wait s",
    "rigid_slowdown": "rigid slowdown",
    "harm_s": "harm s",
}


def columns_of(results: Results, figures: Sequence[str] | None = None) -> list[Column]:
    """Key and heading of what a reader sees: axes, and figures with what was published; all, or some of them."""
    rows = rows_of(results)
    columns = [(axis, axis) for axis in results.results[0].cell.axes]
    for figure in figures or results.campaign.figures:
        short = figure.removesuffix("_s")
        columns.append((figure, HEADINGS[figure]))
        beside = {f"{AS_PUBLISHED}{figure}": AS_IT_COUNTS, f"published_{figure}": "paper", f"{short}_error": "diff %"}
        if results.asked.conditions.scale != 1:
            ratios = (f"{short}_ratio", f"{AS_PUBLISHED}{short}_ratio", f"published_{short}_ratio")
            beside = dict(zip(ratios, ("ratio", AS_IT_COUNTS, "paper"), strict=True))
        columns += [column for column in beside.items() if any(column[0] in row for row in rows)]
    return columns


def shown(row: Mapping[str, Any], key: str) -> str:
    """One value of a table, with its interval if there is one; errors and shares in per cent."""
    value, ci95 = row.get(key), row.get(f"{key}_ci95")
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if key.endswith("_error"):
        return f"{100 * value:+.2f}"
    if key.endswith("_ratio"):
        return f"{value:.3f}"
    if row.get(f"{key}_sd", 0.0) > TELLING_SD * value and key.startswith("published_"):
        return f"{value:.1f} ± {row[f'{key}_sd']:.0f}"
    scale, unit = (100, " %") if key.endswith(("_use", "_use_difference")) else (1, "")
    interval = f" ± {scale * ci95:.1f}" if ci95 is not None else ""
    return f"{scale * value:.1f}{interval}{unit}"


def as_text(results: Results) -> Group:
    """Tables that fit a terminal; what does not fit is left to the other formats."""
    parts: list[Any] = []
    if not results.campaign.claims:  # their cells are tables of the campaigns that they come from
        parts += _tables(results)
    if differences := notable_differences(results):
        parts += _rich("Differences, paired by seed", difference_columns(differences), differences)
    if claims := claims_of(results):
        parts += _rich("Claims, in per cent", CLAIM_COLUMNS, claims)
        parts.append(Text("\n".join(f"{claim['claim']}: {claim['definition']}" for claim in claims)))
    parts.append(Text("\n".join(remarks(results))))
    return Group(*parts)


def _tables(results: Results) -> list[Any]:
    """One table; if the paper counts in its own way, one for each figure, so that both ways have room."""
    title, rows = results.campaign.title, rows_of(results)
    if not results.campaign.quirks:
        return _rich(title, columns_of(results), rows)
    apart = [part for figure in results.campaign.figures for part in _rich(None, columns_of(results, [figure]), rows)]
    return [Text(title), *apart]


def printed(results: Results) -> str:
    """The text as it is written to a file, with the manifest."""
    console = Console(file=io.StringIO(), width=TERMINAL, highlight=False)
    with console.capture() as captured:
        console.print(as_text(results))
        console.print(Text(f"\nManifest\n{as_manifest(results)}"), end="")
    return captured.get()


def notable_differences(results: Results) -> list[dict[str, Any]]:
    """Differences that come with an interval: those of several repeats."""
    return differences_of(results) if results.campaign.repeats > 1 else []


def difference_columns(differences: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Axes, whom it is compared with, and one column a figure."""
    keys = [key for key in differences[0] if not key.endswith("_ci95")]
    return [(key, HEADINGS.get(key.removesuffix("_difference"), key)) for key in keys]


def remarks(results: Results) -> list[str]:
    """What a reader has to know about the figures."""
    campaign, manifest = results.campaign, results.manifest
    lines = [f"source: {campaign.published.source}"] if campaign.published else []
    lines += [f"{AS_IT_COUNTS}: {meaning} ({name})" for name, meaning in manifest["quirks"].items()]
    if manifest["quirks"] and campaign.published and results.asked.conditions.scale == 1:
        lines.append(f"diff %: {AS_IT_COUNTS}, against the paper; all other figures are honest")
    if results.asked.part:
        lines.append(f"calibrated to: {results.asked.part}")
    if results.asked.conditions.scale != 1:
        lines.append(f"times scaled by {results.asked.conditions.scale:g}; ratios are to {campaign.baseline}")
    if len(commits := manifest["commit"]) > 1:
        lines.append(f"cells were run with {len(commits)} versions of the code: {', '.join(commits)}")
    return lines


def _rich(title: str | None, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """A table no wider than a terminal, and a line that names what had no room."""
    shown_columns = list(_that_fit(columns, rows))
    table = Table(title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
    for key, heading in shown_columns:
        numeric = all(isinstance(row.get(key), int | float | None) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=key not in WRAPPED)
    for row in rows:
        table.add_row(*(shown(row, key) for key, _ in shown_columns))
    left_out = ", ".join(heading for _, heading in columns[len(shown_columns) :])
    return [table, Text(f"not shown for want of room: {left_out}")] if left_out else [table]


def _that_fit(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Iterator[Column]:
    width = 0
    for key, heading in columns:
        cells = [] if key in WRAPPED else [len(shown(row, key)) for row in rows]
        width += max([len(heading), *cells]) + 2
        if width > TERMINAL:
            return
        yield key, heading


def as_csv(results: Results) -> str:
    """One line a cell, all figures."""
    rows = [{**row, "runs": " ".join(row["runs"])} for row in rows_of(results)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(results: Results) -> str:
    """Everything, with the manifest."""
    return json.dumps(report_of(results), indent=1) + "\n"


def as_markdown(results: Results) -> str:
    """A page with the tables, the calibration and the manifest."""
    campaign = results.campaign
    parts = [f"# {campaign.title}", ""]
    parts += [f"{line}\n" for line in (campaign.source, campaign.notes) if line]
    parts += [_markdown(columns_of(results), rows_of(results))]
    if differences := notable_differences(results):
        parts += ["## Differences, paired by seed\n", _markdown(difference_columns(differences), differences)]
    if claims := claims_of(results):
        columns = [*CLAIM_COLUMNS, ("figure", "figure"), ("definition", "definition")]
        parts += ["## Claims, in per cent\n", _markdown(columns, claims)]
    if calibrated := calibrated_of(campaign):
        rows = [{"name": n, "value": f"{entry.value:g}", "origin": entry.origin} for n, entry in calibrated.items()]
        parts += ["## Calibration\n", _markdown([(key, key) for key in rows[0]], rows)]
    parts += ["## Manifest\n"]
    parts += [as_manifest(results).rstrip()]
    parts += [f"- {line}" for line in remarks(results) if not line.startswith(AS_IT_COUNTS)]
    return "\n".join(parts) + "\n"


def as_manifest(results: Results) -> str:
    """How the figures were made, as a list for a page that keeps them."""
    return as_list({name: value for name, value in results.manifest.items() if name != "calibration"})


def _markdown(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [" | ".join(["", *(heading for _, heading in columns), ""]).strip(), "|" + "---|" * len(columns)]
    for row in rows:
        cells = (shown(row, key).replace("|", "\\|") for key, _ in columns)
        lines.append(" | ".join(["", *cells, ""]).strip())
    return "\n".join(lines) + "\n"
