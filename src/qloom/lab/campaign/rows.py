"""The table of a campaign: one row a cell, with what was published about it, and differences between strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qloom.errors import JournalError
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.file import read_events
from qloom.lab.campaign.cells import Cell, calibrated_of, expand, published_for
from qloom.lab.campaign.figures import AS_PUBLISHED, counted, figures_of, spread_of
from qloom.lab.campaign.model import Campaign
from qloom.lab.campaign.store import CampaignRun, CampaignStore


@dataclass(frozen=True)
class Result:
    """A cell, its runs, and their figures in the order of the repeats."""

    cell: Cell
    runs: list[str]
    figures: list[dict[str, float]]

    @property
    def strategy(self) -> str:
        """What its strategy is called in the campaign."""
        return str(self.cell.axes.get("strategy") or self.cell.setting.strategies)

    def mean(self, figure: str) -> float:
        """Over all repeats."""
        return spread_of([figures[figure] for figures in self.figures]).mean

    def as_published(self, figure: str) -> float:
        """The same, counted as the paper counts."""
        return spread_of([counted(figures, figure) for figures in self.figures]).mean


@dataclass(frozen=True)
class Results:
    """All that came of a campaign."""

    asked: CampaignRun
    campaign: Campaign
    results: list[Result]
    manifest: dict[str, Any]

    def events(self, result: Result) -> list[Event]:
        """The journal of its first repeat."""
        return read_events(home.find_run(result.runs[0]))


def read_results(store: CampaignStore) -> Results:
    """Every figure anew, from the journals."""
    asked = store.asked()
    campaign = asked.campaign()
    done = store.done()
    results = []
    for cell in expand(campaign, asked.name):
        runs = [done[cell.id, repeat] for repeat in range(campaign.repeats) if (cell.id, repeat) in done]
        if len(runs) < campaign.repeats:
            raise JournalError(
                f"campaign {asked.name}: {cell.id} is not done",
                hint=f"go on with: qloom campaign run {asked.name}",
            )
        figures = [figures_of(read_events(home.find_run(run)), campaign.quirks) for run in runs]
        for run, found in zip(runs, figures, strict=True):
            if missing := [figure for figure in campaign.figures if figure not in found]:
                raise JournalError(f"{cell.id}: no job of {run} has a {missing[0]}", hint="a workload of more jobs")
        results.append(Result(cell, runs, figures))
    return Results(asked, campaign, results, {**store.manifest(), "commit": store.commits()})


def rows_of(results: Results) -> list[dict[str, Any]]:
    """One flat row a cell, for tables and `--json`. Errors are relative: 0.01 is one per cent."""
    campaign, rows = results.campaign, []
    for result in results.results:
        row: dict[str, Any] = {**result.cell.axes}
        everywhere = [name for name in result.figures[0] if all(name in figures for figures in result.figures)]
        for figure in dict.fromkeys([*campaign.figures, *everywhere]):
            found = spread_of([figures[figure] for figures in result.figures])
            row[figure] = round(found.mean, 6)
            if found.n > 1 and figure in campaign.figures:
                row[f"{figure}_sd"], row[f"{figure}_ci95"] = round(found.sd, 6), round(found.ci95, 6)
        row.update(_beside(results, result))
        row["runs"] = result.runs
        rows.append(row)
    return rows


def _beside(results: Results, result: Result) -> dict[str, Any]:
    """What was published about a cell; scaled runs are compared by their ratio to the baseline only."""
    campaign = results.campaign
    known = published_for(campaign, result.cell)
    base = baseline_of(results, result)
    known_base = published_for(campaign, base.cell) if base is not None else {}
    entries: dict[str, Any] = {}
    for figure in campaign.figures:
        short = figure.removesuffix("_s")
        if figure in known:
            entries[f"published_{figure}"] = known[figure]
            if f"{figure}_sd" in known:
                entries[f"published_{figure}_sd"] = known[f"{figure}_sd"]
            if results.asked.conditions.scale == 1:
                entries[f"{short}_error"] = round(result.as_published(figure) / known[figure] - 1, 6)
        if base is not None and base.mean(figure):
            entries[f"{short}_ratio"] = round(result.mean(figure) / base.mean(figure), 6)
            if f"{AS_PUBLISHED}{figure}" in result.figures[0]:
                ratio = result.as_published(figure) / base.as_published(figure)
                entries[f"{AS_PUBLISHED}{short}_ratio"] = round(ratio, 6)
            if figure in known and figure in known_base:
                entries[f"published_{short}_ratio"] = round(known[figure] / known_base[figure], 6)
    if known and results.asked.part is not None:
        entries["fitted"] = result.cell.matches(campaign.calibrate.get(results.asked.part, {}))
    return entries


def baseline_of(results: Results, result: Result) -> Result | None:
    """The cell that differs in its strategy only, which is the baseline's."""
    if results.campaign.baseline is None:
        return None
    wanted = {name: value for name, value in result.cell.axes.items() if name != "strategy"}
    for other in results.results:
        if other.cell.setting.strategy == results.campaign.baseline and other.cell.matches(wanted):
            return other
    return None


def differences_of(results: Results) -> list[dict[str, Any]]:
    """Strategy by strategy against the baseline, or else the first one: repeats are paired, as their seeds are."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results.results:
        others = tuple(value for name, value in result.cell.axes.items() if name != "strategy")
        groups.setdefault(others, []).append(result)
    rows = []
    for group in groups.values():
        reference = next((r for r in group if r.cell.setting.strategy == results.campaign.baseline), group[0])
        rows += [_difference(results.campaign, r, reference) for r in group if r is not reference]
    return [row for row in rows if row]


def _difference(campaign: Campaign, result: Result, reference: Result) -> dict[str, Any]:
    than = reference.cell.axes.get("strategy")
    if than is None:
        return {}
    row: dict[str, Any] = {**result.cell.axes, "than": than}
    for figure in campaign.figures:
        pairs = zip(result.figures, reference.figures, strict=True)
        found = spread_of([one[figure] - other[figure] for one, other in pairs])
        row[f"{figure}_difference"] = round(found.mean, 6)
        if found.n > 1:
            row[f"{figure}_difference_ci95"] = round(found.ci95, 6)
    return row


def claims_of(results: Results) -> list[dict[str, Any]]:
    """The percentages of a paper, from its own table and from these runs."""
    rows = []
    for claim in results.campaign.claims:
        pair = [next(r for r in results.results if r.cell.matches(wanted)) for wanted in (claim.of, claim.than)]
        honest = _percent([result.mean(claim.figure) for result in pair], claim.relative_to)
        got = _percent([result.as_published(claim.figure) for result in pair], claim.relative_to)
        known = [published_for(results.campaign, result.cell).get(claim.figure) for result in pair]
        rows.append(
            {
                "claim": claim.claim,
                "published_percent": claim.percent,
                "of_published_table": None if None in known else round(_percent(known, claim.relative_to), 2),
                f"{AS_PUBLISHED}percent": round(got, 2),
                "percent": round(honest, 2),
                "difference": round(got - claim.percent, 2),
                "figure": claim.figure,
                "definition": claim.definition(),
                "runs": [result.runs[0] for result in pair],
            }
        )
    return rows


def _percent(pair: list[Any], relative_to: str) -> float:
    one, other = map(float, pair)
    return 100 * (other - one) / (other if relative_to == "than" else one)


def report_of(results: Results) -> dict[str, Any]:
    """The whole report as plain values."""
    body: Mapping[str, Any] = {
        "campaign": results.asked.name,
        "title": results.campaign.title,
        "rows": rows_of(results),
        "differences": differences_of(results),
        "claims": claims_of(results),
        "calibrated": {name: entry.model_dump() for name, entry in calibrated_of(results.campaign).items()},
        "manifest": results.manifest,
    }
    return {name: value for name, value in body.items() if value or name == "rows"}
