"""What the page is sent of a run beside its bars: how it stands, its jobs, phases, results, figures and sentences.

Everything is text and numbers; names that users gave are made printable here, and shown as text by the page.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import Any

from qloom.journal.events import Called, JobEnded
from qloom.journal.history import history_of
from qloom.journal.results import decode_plain
from qloom.journal.state import JobState
from qloom.runs.live import LiveRun
from qloom.views.accounting import account
from qloom.views.status import done_tasks, reported
from qloom.views.summary import counted, human_us, listed, printable
from qloom.views.timeline import OPACITY, PALETTE

PHASES_SHOWN = 40  # the latest ones
RESULT_CHARACTERS = 500
JOBS_SHOWN = 200
COST_SHARE = 200  # figures of a long run are made again after this many times what making them took
RESUMABLE = ("killed", "interrupted", "failed")


class RunDescription:
    """Describes one run again and again; what takes long for a long run is made less often."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._figures: dict[str, Any] = {}
        self._sentences: list[str] = []
        self._due_s = float("-inf")
        self._made_for = ""

    def head(self) -> dict[str, Any]:
        """How the run stands now."""
        live, run = self._live, self._live.run
        self._make_figures()
        return row_of(live) | {
            "grows": live.goes_on and run.start.epoch_us is not None,
            "now_us": live.now_us,
            "resumable": live.state in RESUMABLE and live.trouble is None,
            "gaps": [list(gap) for gap in run.gaps],
            "figures": self._figures,
            "sentences": self._sentences,
            "jobs": [self._job(name) for name in list(run.jobs)[:JOBS_SHOWN]],
            "phases": self._phases(),
        }

    def _make_figures(self) -> None:
        live, began_s, used_s = self._live, time.monotonic(), time.thread_time()
        if live.run.start.n < 0 or (began_s < self._due_s and self._made_for == live.state):
            return
        now = replace(live.run, now_us=live.now_us)
        self._figures = account(history_of(now)).as_dict()
        self._sentences = [printable(sentence) for sentence in live.sentences()[1:]]  # the page has a headline
        self._made_for, self._due_s = live.state, began_s + COST_SHARE * (time.thread_time() - used_s)

    def _job(self, name: str) -> dict[str, Any]:
        job = self._live.run.jobs[name]
        ended = job.ended
        shown: dict[str, Any] = {
            "name": printable(name),
            "state": printable(", ".join([_doing(self._live, job), *reported(job, self._live.now_us)])),
            "tasks": job.done_tasks,
            "failed": job.failed_tasks,
            "nodes": len(job.nodes),
        }
        return shown if ended is None else shown | _result(ended)

    def _phases(self) -> list[dict[str, Any]]:
        run = self._live.run
        still = [(call, None) for job in run.jobs.values() for call in job.calls.values()]
        over = [(one.call, one.returned_us) for one in run.trace.calls[-PHASES_SHOWN:]]
        return [_phase(call, returned_us) for call, returned_us in [*over, *still][-PHASES_SHOWN:]]


def row_of(live: LiveRun) -> dict[str, Any]:
    """How a run stands, as a list of runs shows it."""
    start, estimate = live.run.start, live.estimate()
    row: dict[str, Any] = {
        "run": live.name,
        "program": printable(os.path.basename(start.program or "")),
        "strategy": printable(start.strategy),
        "world": printable(start.world),
        "created": start.created,
        "state": live.state,
        "problem": live.trouble and printable(live.trouble),
        "goes_on": live.goes_on,
        "calls": live.run.returned_calls,
        "tasks": done_tasks(live.run),
    }
    if estimate is not None:
        row |= {"done": round(estimate.done, 4), "left_s": round(estimate.left_s, 1), "all_calls": estimate.calls}
    return row


def look() -> dict[str, Any]:
    """Colours and opacities, the same as in pictures."""
    return {"palette": list(PALETTE), "opacity": OPACITY}


def _doing(live: LiveRun, job: JobState) -> str:
    if job.ended is not None:
        return job.ended.state
    if not live.goes_on:
        return "stopped"
    if job.executing:
        return "QPU executes"
    if job.tasks:
        return "computes"
    return "waits" if job.requests or job.queued else "between phases"


def _phase(call: Called, returned_us: int | None) -> dict[str, Any]:
    names = listed(list(dict.fromkeys(call.names)))
    what = names if len(call.names) < 2 else f"{names} ({counted(len(call.names), 'task')})"
    return {
        "job": printable(call.job),
        "order": call.order + 1,
        "kind": call.kind,
        "what": printable(what),
        "began": human_us(call.at_us),
        "took": None if returned_us is None else human_us(returned_us - call.at_us),
    }


def _result(ended: JobEnded) -> dict[str, Any]:
    if ended.error is not None:
        hint = f" ({ended.error['hint']})" if ended.error.get("hint") else ""
        return {"error": printable(f"{ended.error.get('message')}{hint}")[:RESULT_CHARACTERS]}
    if ended.result is None:
        return {}
    if "plain" not in ended.result:
        return {"result": "kept in a file: qloom result prints it"}
    value = decode_plain(ended.result["plain"])
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    return {"result": printable(text if len(text) <= RESULT_CHARACTERS else f"{text[:RESULT_CHARACTERS]} ...")}
