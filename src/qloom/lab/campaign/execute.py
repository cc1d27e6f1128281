"""Runs the cells of a campaign that are not done yet, and checks that virtual ones can be run again to the byte."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from qloom.errors import JobError, JournalError
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.file import FILE_NAME
from qloom.lab.campaign.cells import Cell, expand
from qloom.lab.campaign.loadplan import LoadPlan
from qloom.lab.campaign.manifest import commit, manifest_of
from qloom.lab.campaign.plans import plan_for
from qloom.lab.campaign.store import CampaignRun, CampaignStore
from qloom.runs.runner import Outcome, Plan, execute

Piece = tuple[Cell, int, Plan | LoadPlan]  # a cell, which repeat of it, and what is run for it
Told = Callable[[int, int, str], None]  # how many are done, of how many, and which one is next


def pieces_of(asked: CampaignRun) -> list[Piece]:
    """All runs of a campaign, every one of them checked."""
    campaign = asked.campaign()
    cells = expand(campaign, asked.name)
    return [
        (cell, repeat, plan_for(cell, campaign.seed, repeat, asked.conditions))
        for repeat in range(campaign.repeats)
        for cell in cells
    ]


def carry_out(asked: CampaignRun, told: Told, listener: Callable[[Event], None] | None = None) -> CampaignStore:
    """Run what is not done; a cell that fails is reported at the end, and tried again the next time."""
    pieces = pieces_of(asked)
    store = CampaignStore(asked.directory)
    store.begin(asked, manifest_of(asked))
    code = commit()
    failed: list[str] = []
    for place, (cell, repeat, plan) in enumerate(pieces):
        with store.claim(cell.id, repeat) as is_mine:
            if not is_mine:
                continue
            told(place, len(pieces), f"{cell.id}, repeat {repeat + 1}")
            with home.part_of(asked.name):
                outcome = _run(plan, listener)
            if outcome.errors:
                failed.append(f"{cell.id}, repeat {repeat + 1} ({outcome.run}): {outcome.errors[0]}")
            else:
                store.add(cell.id, repeat, outcome.run, code)
    told(len(pieces), len(pieces), "")
    if failed:
        raise JobError(f"{len(failed)} of {len(pieces)} cells failed; {failed[0]}", hint="run it again to retry them")
    if others := len(pieces) - len(store.done()):
        raise JobError(f"{others} of {len(pieces)} cells are being run by another process", hint="wait for it")
    return store


def verify(store: CampaignStore, told: Told) -> tuple[int, int, list[str]]:
    """Run the virtual cells again, elsewhere; how many were compared, how many are not virtual, and which differ."""
    asked = store.asked()
    pieces = pieces_of(asked)
    done = store.done()
    virtual = [piece for piece in pieces if piece[2].world == "virtual"]
    different = []
    for place, (cell, repeat, plan) in enumerate(virtual):
        told(place, len(virtual), f"{cell.id}, repeat {repeat + 1}")
        run = done.get((cell.id, repeat))
        if run is None:
            raise JournalError(
                f"{cell.id}, repeat {repeat + 1} is not done", hint="qloom campaign run goes on with it"
            )
        before = (home.find_run(run) / FILE_NAME).read_bytes()
        if _journal_again(plan) != before:
            different.append(f"{cell.id}, repeat {repeat + 1} ({run})")
    return len(virtual), len(pieces) - len(virtual), different


def _run(plan: Plan | LoadPlan, listener: Callable[[Event], None] | None = None) -> Outcome:
    return plan.execute() if isinstance(plan, LoadPlan) else execute(plan, listener=listener)


def _journal_again(plan: Plan | LoadPlan) -> bytes:
    with _another_home():
        outcome = _run(plan)
        return (home.runs_directory() / outcome.run / FILE_NAME).read_bytes()


@contextmanager
def _another_home() -> Iterator[None]:
    """A place for runs that are thrown away."""
    before = os.environ.get("QLOOM_HOME")
    with tempfile.TemporaryDirectory(prefix="qloom-verify-") as place:
        os.environ["QLOOM_HOME"] = place
        try:
            yield
        finally:
            if before is None:
                del os.environ["QLOOM_HOME"]
            else:
                os.environ["QLOOM_HOME"] = before
