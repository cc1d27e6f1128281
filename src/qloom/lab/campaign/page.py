"""The report as one page that needs nothing else: tables, bars, nodes over time, timelines, manifest."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from qloom.lab.campaign.cells import calibrated_of
from qloom.lab.campaign.charts import TIMELINES_AT_MOST, bars, drawing_of, nodes_over_time, worth_drawing
from qloom.lab.campaign.formats import (
    CLAIM_COLUMNS,
    Column,
    columns_of,
    difference_columns,
    notable_differences,
    shown,
)
from qloom.lab.campaign.manifest import plain
from qloom.lab.campaign.rows import Results, claims_of, rows_of
from qloom.views.page import Table, page
from qloom.views.timeline import INK

TIMELINES_SHOWN = 6
MARK, END = "<h2>Timeline</h2>", "</body>"


def page_of(results: Results) -> str:
    """The page. It has no script and fetches nothing; every name in it is escaped."""
    campaign = results.campaign
    tables: list[Table] = [("Results", _rows(columns_of(results), rows_of(results)))]
    if differences := notable_differences(results):
        tables.append(("Differences, paired by seed", _rows(difference_columns(differences), differences)))
    if claims := claims_of(results):
        tables.append(("Claims, in per cent", _rows([*CLAIM_COLUMNS, ("definition", "definition")], claims)))
    body = page(
        campaign.title, tables, [(r.cell.id, results.events(r)) for r in worth_drawing(results)[:TIMELINES_SHOWN]]
    )
    mark = MARK if MARK in body else END  # workloads have no timelines
    before, _, after = body.partition(mark)
    sections = [_remark(campaign.source), _remark(campaign.notes), *_figures(results)]
    return (before + "\n".join(sections) + "\n" + mark + after).replace(END, _manifest(results) + END)


def _rows(columns: list[Column], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Headings that occur twice differ by a narrow space, so that a row keeps both."""
    labelled: list[dict[str, Any]] = []
    for row in rows:
        cells: dict[str, Any] = {}
        for key, heading in columns:
            while heading in cells:
                heading += "\u2009"
            plain = isinstance(row.get(key), float) and not key.endswith(("_error", "_use", "_ratio"))
            cells[heading] = row[key] if plain and f"{key}_ci95" not in row else shown(row, key)
        labelled.append(cells)
    return labelled


def _figures(results: Results) -> list[str]:
    parts = []
    if results.campaign.map is not None:
        parts.append(_figure("Who wins", drawing_of(results, "map", "svg")))
    else:
        parts.append(_figure("Strategies", bars(results, "svg", transparent=True)))
    if not worth_drawing(results):
        return parts
    parts.append(
        _figure("Nodes over time, one job above the other", nodes_over_time(results, "svg", transparent=True))
    )
    if len(results.results) > TIMELINES_AT_MOST:
        parts.append(_remark(f"At most {TIMELINES_AT_MOST} cells are drawn; all journals are named in the JSON."))
    return parts


def _figure(title: str, svg: bytes) -> str:
    text = svg.decode()
    text = text[text.index("<svg") :].strip().replace(INK, "currentColor")
    opening, rest = text.split(">", 1)
    opening = re.sub(r'\s(width|height|version|xmlns(:xlink)?)="[^"]*"', "", opening)
    label = escape(title, quote=True)
    return (
        f'<h2>{escape(title)}</h2>\n<figure class="wide" style="margin:0">'
        f'{opening} role="img" aria-label="{label}">{rest}</figure>'
    )


def _remark(text: str | None) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _manifest(results: Results) -> str:
    calibrated = calibrated_of(results.campaign)
    lines = [(name, plain(value)) for name, value in results.manifest.items() if name != "calibration"]
    lines += [(name, f"{entry.value:g} ({entry.origin})") for name, entry in calibrated.items()]
    entries = "\n".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>" for name, value in lines)
    return f"<h2>Manifest and calibration</h2>\n<dl>\n{entries}\n</dl>\n"
