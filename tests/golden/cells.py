"""The runs that are kept: over all strategies, options, overheads, faults, blocks, candidates, spare work and loads.

A cell is a name and a function that runs something in virtual time and gives back its rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import qloom
from qloom.errors import Deadlock
from qloom.journal.file import FILE_NAME, read_events
from qloom.journal.results import ResultStore
from qloom.lab.advisor.crowd import Waits
from qloom.lab.advisor.known import Drawn, Known
from qloom.lab.advisor.trial import run_trial
from qloom.lab.load.background import Failures
from qloom.lab.load.metrics import Mean
from qloom.lab.load.records import JobRecord
from qloom.lab.load.run import Load, run_load
from qloom.lab.load.workload import Hybrid, LoadJob
from qloom.programs.load import Program, load_program
from qloom.runs.resume import resume
from qloom.runs.runner import Plan
from qloom.site import Overheads, Qpu, Site
from qloom.testing import programs
from tests.golden.drawn import HOLDS, NAMES, OPTIONS, SLOW, Draw, faults, program, site, strategy
from tests.golden.projection import rows_of, value_in_words
from tests.simulation import disasters
from tests.simulation.harness import interpret, simulate_plans

RANDOM = 140
DRIVERS = 24
LOADS = 24
SHORT = {"classical_s": [2.31, 0.52, 1.13], "score_s": 1.07, "quantum_s": 3.19, "iterations": 3}
KEPT_PROGRAM = str(Path(__file__).parent / "journals" / "kept_program.py")

Cell = Callable[[], list[str]]


def cells() -> dict[str, Cell]:
    """All of them, by name."""
    return dict(_cells())


def _cells() -> Iterator[tuple[str, Cell]]:
    for name in NAMES:
        for hold in HOLDS:
            yield f"phases/{name}{hold}", lambda chosen=name + hold: _phases(chosen)
        yield f"phases/{name}/slow", lambda chosen=name: _phases(chosen, overheads=SLOW)
        yield f"phases/{name}/spare", lambda chosen=name: _phases(chosen, overheads=SLOW, speculate=True)
        yield f"phases/{name}/jitter", lambda chosen=name: _phases(chosen, speculate=True, jitter=0.3)
        for options in OPTIONS.get(name, ()):
            said = ",".join(f"{key}={value:g}" for key, value in options.items())
            yield (
                f"options/{name}/{said}",
                lambda chosen=name, given=options: _phases(chosen, given, overheads=SLOW, speculate=True),
            )
        for each in programs.GOOD:
            yield f"contract/{name}/{each.__name__}", lambda chosen=name, run=each: _contract(chosen, run)
        for cut in (14, 31):
            yield f"resumed/{name}/after {cut}", lambda chosen=name, at=cut: _resumed(chosen, at)
        yield f"advised/{name}", lambda chosen=name: _advised(chosen)
    yield "contract/offload/fails_late", lambda: _contract("offload", programs.fails_late)
    yield "contract/weave/fails_late", lambda: _contract("weave", programs.fails_late)
    yield "contract/malleable/candidate, QPU away", lambda: _contract("malleable", programs.candidate, offline=True)
    for seed in range(RANDOM):
        yield f"mixed/{seed:03d}", lambda seed=seed: _mixed(seed)
    for seed in range(DRIVERS):
        yield f"drivers/{seed:02d}", lambda seed=seed: _drivers(seed)
    for seed in range(LOADS):
        yield f"load/{seed:02d}", lambda seed=seed: _load(seed)


def _phases(
    chosen: str, options: dict[str, float] | None = None, *, overheads: Overheads | None = None, **parameters: Any
) -> list[str]:
    """Two jobs of the papers' application, in short."""
    place = Site(nodes=3, qpus=(Qpu(shares=2, lanes=2),), overheads=overheads or Overheads())
    given = {**SHORT, "arrivals_s": [0.0, 0.37], **parameters}
    plan = Plan(load_program("phases"), given, chosen, options or {}, "virtual", place, jobs=2)
    ended = simulate_plans([plan, plan], place)
    return rows_of(ended.events, ended.kept.load)


def _contract(chosen: str, each: Any, offline: bool = False) -> list[str]:
    place = Site(nodes=3, qpus=(Qpu(offline=offline),))
    plan = Plan(Program("contract", each), {}, chosen, {}, "virtual", place)
    ended = simulate_plans([plan], place)
    return rows_of(ended.events, ended.kept.load)


def _mixed(seed: int) -> list[str]:
    """Random programs under random strategies at once; every third run has faults, every fourth cancellations."""
    draw = Draw("mixed", seed)
    place = site(draw)
    plans = []
    for _ in range(draw.between(1, 5)):
        steps = program(draw, place.nodes)
        name, options = strategy(draw, place.nodes)
        plans.append(Plan(Program("interpret", interpret), {"steps": steps}, name, options, "virtual", place))
    cancelled = {draw.below(len(plans)): draw.length_s()} if seed % 4 == 3 else {}
    wrong = faults(draw) if seed % 3 == 2 else None
    try:
        ended = simulate_plans(plans, place, faults=wrong, cancel_at_s=cancelled)
    except Deadlock as stuck:
        return [f"stuck: {stuck.message}"]
    return rows_of(ended.events, ended.kept.load)


def _drivers(seed: int) -> list[str]:
    """Drivers that live in jobs of their own, beside them or in chains, and hand their runs over."""
    draw = Draw("drivers", seed)
    place = replace(site(draw), nodes=3, cluster_nodes=0)
    if place.qpus[0].outages_s:
        place = replace(place, qpus=(Qpu(shares=2),))
    chosen = [draw.choice(NAMES) for _ in range(draw.between(1, 3))]
    kinds = [
        draw.choice(["in-job", "beside", *(["chain"] if name in ("workflow", "split") else [])]) for name in chosen
    ]
    widths = [2 if kind == "beside" else 3 for kind in kinds]
    steps = [[_plain_step(draw, width) for _ in range(draw.between(1, 4))] for width in widths]
    runs = [[number] for number in range(len(chosen))]
    schedule = disasters.Schedule(seed, steps, chosen, runs, kinds, place, [])
    ended = disasters.run(schedule)
    return [
        f"run {number + 1}: {row}"
        for number, (events, kept) in enumerate(zip(ended.journals, ended.kept, strict=True))
        for row in rows_of(events, kept.load)
    ]


def _plain_step(draw: Draw, nodes: int) -> tuple[Any, ...]:
    """A step that has the same result wherever it runs."""
    while True:
        step = program(draw, nodes)[0]
        if step[0] not in ("candidate", "abandon", "guess"):
            return step


def _resumed(chosen: str, cut: int) -> list[str]:
    """A run on the disk that was killed after some events, and gone on with."""
    with _home() as home:
        place = Site(nodes=3, qpus=(Qpu(shares=2),), overheads=SLOW)
        whole = qloom.run(KEPT_PROGRAM, strategy=chosen, world="virtual", site=place)
        assert whole.directory is not None
        path = whole.directory / FILE_NAME
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:cut]))
        resumed = resume(str(home / "runs" / whole.run))
        assert resumed.results == whole.results
        return rows_of(read_events(whole.directory), ResultStore(whole.directory / "results").load)


@contextmanager
def _home() -> Iterator[Path]:
    """A home for runs on the disk that is gone afterwards."""
    before = os.environ.get("QLOOM_HOME")
    with tempfile.TemporaryDirectory(prefix="qloom-golden-") as temporary:
        os.environ["QLOOM_HOME"] = temporary
        try:
            yield Path(temporary)
        finally:
            if before is None:
                del os.environ["QLOOM_HOME"]
            else:
                os.environ["QLOOM_HOME"] = before


def _advised(chosen: str) -> list[str]:
    """What the advisor's trials cost with a crowd, drawn durations and a queue at the QPU."""
    rows = []
    place = Site(nodes=3, qpus=(Qpu(shares=2),), overheads=SLOW)
    plan = Plan(load_program("phases"), {**SHORT, "speculate": True}, chosen, {}, "virtual", place, jobs=2)
    for wait_s in (0.0, 20.0):
        trial = run_trial(plan, Drawn(Known(), "golden"), Waits(wait_s), "golden", Known(), qpu_wait_s=wait_s / 10)
        waits = value_in_words([round(waited_s, 6) for waited_s in trial.node_waits_s])
        quantum = value_in_words([round(took_s, 6) for took_s in trial.quantum_s])
        rows.append(f"nodes take {wait_s:g} s: {trial.turnaround_s:.6f} s, {trial.node_s:.6f} node-seconds,")
        rows.append(f"  {trial.qpu_s:.6f} QPU-seconds, waits for nodes {waits}, quantum results {quantum}")
    return rows


def _load(seed: int) -> list[str]:
    """Hybrid jobs among rigid ones."""
    draw = Draw("load", seed)
    nodes = draw.choice((6, 8))
    jobs = []
    at_s = 0.0
    for number in range(1, 31):
        at_s += draw.length_s() * 2
        run_s = 5 * draw.length_s()
        phases = Hybrid(
            iterations=draw.between(1, 3),
            classical_s=draw.length_s(),
            quantum_s=draw.length_s(),
            parts=draw.between(1, 2),
            speculate=draw.choice((0.0, 0.0, 0.5, 1.0)),
            strategy=draw.choice(NAMES),
        )
        is_hybrid = draw.below(3) == 0
        limit = draw.choice((1.0, 1.5, 3.0))
        length_s = phases.run_s if is_hybrid else run_s
        width = draw.between(2, 3) if is_hybrid else draw.between(1, nodes)
        jobs.append(LoadJob(number, at_s, length_s, width, limit * length_s, hybrid=phases if is_hybrid else None))
    failures = Failures(200.0, 20.0) if seed % 4 == 3 else None
    overheads = draw.choice((Overheads(), SLOW, Overheads(tick_s=2.0, grant_s=0.11, release_s=0.07)))
    place = Site(nodes=nodes, qpus=(Qpu(shares=2),), overheads=overheads)
    policy = ("fcfs", "easy", "conservative", "replan")[seed % 4]
    ended = run_load(Load(jobs, place, policy, failures=failures, warm_up=0.0, harm=seed % 5 == 0, seed=seed))
    rows = [_of_record(record) for record in ended.records]
    return [*rows, f"harm: {_rounded(ended.metrics.harm_s)}", f"failed: {len(ended.errors)}"]


def _of_record(record: JobRecord) -> str:
    held = f"nodes {record.node_s_held:.6f} s held and {record.node_s_busy:.6f} busy"
    qpu = f"QPU {record.qpu_s_held:.6f} and {record.qpu_s_busy:.6f}, {record.wasted_node_s:.6f} wasted"
    who = f"job {record.number} ({record.strategy or 'rigid'}): {record.state}, requeued {record.requeues} times"
    return f"{record.start_s:.6f} {record.end_s:.6f} {who}, {held}, {qpu}"


def _rounded(harm: Mean | None) -> str:
    return "none" if harm is None else f"{harm.value:.6f} s"
