"""`qloom load`: a cluster that is not empty: hybrid jobs among rigid ones, in virtual time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from qloom.cli import arguments
from qloom.errors import InputError
from qloom.lab.load.background import Failures
from qloom.lab.load.records import write_csv, write_results_swf, write_swf
from qloom.lab.load.report import Row, draw_loads, table_of_loads, table_of_run
from qloom.lab.load.run import Load, prepare, run_load, until_known
from qloom.lab.load.source import Source, write_sidecar
from qloom.lab.load.workload import KINDS, check_load, parse_mix
from qloom.lab.schedulers import POLICIES

DEFAULT_LOAD = 0.7
FIGURES = (".png", ".svg", ".pdf")

app = typer.Typer(help="Simulate a cluster under load: hybrid jobs among rigid ones.", no_args_is_help=True)

Trace = Annotated[Path | None, typer.Argument(help="A trace in SWF. Left out: jobs of the Lublin-Feitelson model.")]
SidecarFile = Annotated[Path | None, typer.Option("--sidecar", help="Hybrid phases and gres of the trace's jobs.")]
JobCount = Annotated[int | None, typer.Option("--jobs", help="How many jobs. [default: all of the trace, or 2000]")]
Nodes = Annotated[int | None, typer.Option(help="Nodes of the first partition. [default: 256]")]
Arrivals = Annotated[
    str | None,
    typer.Option(
        help="trace, poisson, or closed (users wait for their last job). [default: those of the trace, else poisson]"
    ),
]
LoadFactor = Annotated[
    str | None,
    typer.Option(
        "--load", help="Load factor, or several: 0.5,0.7,0.9. [default: that of the trace ('trace'), else 0.7]"
    ),
]
HybridShare = Annotated[str, typer.Option("--hybrid", help="Share of the jobs that are hybrid: 20%.")]
Mix = Annotated[
    str, typer.Option(help=f"Kinds of hybrid jobs with weights, of {', '.join(KINDS)}: classical=2,quantum.")
]
Longest = Annotated[
    float, typer.Option("--hybrid-longest", help="Only jobs of at most this many hours become hybrid.")
]
Largest = Annotated[
    int | None, typer.Option("--hybrid-largest", help="Only jobs of at most this many nodes become hybrid.")
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]


def add_to(parent: typer.Typer) -> None:
    """Register the commands of this file."""
    parent.add_typer(app, name="load")


def _progress(status: Status, what: str) -> Callable[[int, float], None]:
    """Shows how far the repetition has come."""

    def show(runs: int, relative: float) -> None:
        status.update(f"{what}: {runs} runs, mean turnaround within {relative:.1%}")

    return show


def _share(text: str, what: str) -> float:
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        return float(number) / (100 if percent else 1)
    except ValueError:
        raise InputError(f"{what}: {text!r} is not a share", hint="20%, or 0.2") from None


def _arrivals(name: str | None, *, has_trace: bool) -> str:
    """A trace keeps its arrivals unless others are asked for; jobs of the model have none."""
    if name == "trace" and not has_trace:
        raise InputError("--arrivals trace: the model has no arrivals", hint="name a trace, or poisson")
    return name or ("trace" if has_trace else "poisson")


def _loads(text: str | None, arrivals: str, *, has_trace: bool) -> list[float | None]:
    """Load factors; None: whatever the arrivals make."""
    if arrivals == "closed":
        if text is not None:
            raise InputError("users of a closed loop make the load, it cannot be set", hint="--users, --think-s")
        return [None]
    if text is None:
        return [None if has_trace else DEFAULT_LOAD]
    if text == "trace":
        if not has_trace:
            raise InputError("--load trace: there is no trace", hint="name one, or a load factor: --load 0.7")
        return [None]
    try:
        loads = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--load {text!r}: not a number", hint="--load 0.7, or 0.5,0.7,0.9") from None
    for load in loads:
        check_load(load)
    return list(loads)


def _counts(texts: list[str], what: str) -> dict[str, int]:
    counts = {}
    for text in texts:
        name, _, number = text.partition(":")
        if not name or not number.isdigit() or int(number) < 1:
            raise InputError(f"{text!r} is not a {what}", hint=f"--{what} NAME:COUNT")
        counts[name] = int(number)
    return counts


def _require_writable(*paths: Path | None) -> None:
    """Raise now what would otherwise be found only after the simulation."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no directory {path.parent}")
        if path is not None and (path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK)):
            raise InputError(f"cannot write {path}", hint="name a file in a directory that you can write to")


@app.command()
def run(
    trace: Trace = None,
    sidecar: SidecarFile = None,
    jobs: JobCount = None,
    nodes: Nodes = None,
    load: LoadFactor = None,
    arrivals: Arrivals = None,
    users: Annotated[int, typer.Option(help="Users of a closed loop.")] = 20,
    think_s: Annotated[float, typer.Option(help="Their mean pause between two jobs.")] = 600.0,
    policy: Annotated[
        str, typer.Option(help=f"{', '.join(POLICIES.built_in)}, or module:Class of your own.")
    ] = "easy",
    interval_s: Annotated[float, typer.Option(help="Seconds between backfill passes; 0: at every change.")] = 30.0,
    depth: Annotated[int, typer.Option(help="Waiting jobs that a backfill pass looks at; 0: all.")] = 0,
    hybrid: HybridShare = "0%",
    mix: Mix = "balanced",
    hybrid_longest: Longest = 4.0,
    hybrid_largest: Largest = None,
    strategy: Annotated[str, typer.Option(help="Of the hybrid jobs; several with commas, or all.")] = "offload",
    option: Annotated[list[str], typer.Option(help="An option of the strategy: name=number. Repeatable.")] = [],  # noqa: B006
    qpu: Annotated[list[str], typer.Option(help="A QPU, NAME:TECHNOLOGY. Repeatable.")] = [],  # noqa: B006
    site: Annotated[Path | None, typer.Option(help="A site file (TOML).")] = None,
    overheads: Annotated[Path | None, typer.Option(help="Overheads for virtual time (TOML).")] = None,
    partition: Annotated[list[str], typer.Option(help="A further partition, NAME:NODES. Repeatable.")] = [],  # noqa: B006
    gres: Annotated[list[str], typer.Option(help="Another counted resource, NAME:COUNT. Repeatable.")] = [],  # noqa: B006
    mtbf_h: Annotated[float | None, typer.Option(help="Hours after which a node fails, on average.")] = None,
    repair_s: Annotated[float, typer.Option(help="Seconds that a failed node is down.")] = 3600.0,
    warm_up: Annotated[str, typer.Option(help="Share of the jobs, from the first, that is not measured.")] = "10%",
    harm: Annotated[bool, typer.Option("--harm", help="Run without the hybrid jobs, too: their cost.")] = False,
    until_ci: Annotated[str | None, typer.Option(help="Repeat until the mean turnaround is known to: 2%.")] = None,
    most_runs: Annotated[int, typer.Option(help="But not more often than this.")] = 100,
    seed: Seed = 0,
    swf: Annotated[Path | None, typer.Option(help="Write the record of each job, as SWF.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the record of each job, as CSV.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw turnaround and wait over the load (png, svg, pdf).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a workload and measure what it does to hybrid and rigid jobs. Once for each load and strategy."""
    place = arguments.make_site(site, nodes if nodes is not None or site is not None else 256, qpu, overheads)
    source = Source(trace, sidecar, jobs)
    arriving = _arrivals(arrivals, has_trace=trace is not None)
    names, loads = arguments.parse_strategies(strategy), _loads(load, arriving, has_trace=trace is not None)
    options = arguments.parse_options(option)
    arguments.require_known(options, names)
    if (swf is not None or csv is not None) and (len(names) * len(loads) > 1 or until_ci is not None):
        raise InputError("--swf and --csv hold one run", hint="name one load and one strategy, without --until-ci")
    _require_writable(swf, csv, figure)
    if figure is not None and figure.suffix not in FIGURES:
        raise InputError(f"--figure {figure}: unknown format", hint=f"use {', '.join(FIGURES)}")
    plain = Load(
        jobs=(),
        site=place,
        policy=policy,
        policy_options={"interval_s": interval_s, **({"depth": depth} if depth else {})},
        hybrid=_share(hybrid, "--hybrid"),
        mix=parse_mix(mix),
        hybrid_longest_s=hybrid_longest * 3600,
        hybrid_largest=hybrid_largest,
        arrivals=arriving,
        users=users,
        think_s=think_s,
        partitions=_counts(partition, "partition"),
        gres=_counts(gres, "gres"),
        failures=None if mtbf_h is None else Failures(mtbf_h, repair_s),
        warm_up=_share(warm_up, "--warm-up"),
        harm=harm,
    )
    within = None if until_ci is None else _share(until_ci, "--until-ci")
    rows: list[Row] = []
    with Console(stderr=True).status("") as status:
        for factor, name in product(loads, names):
            what = name if factor is None else f"load {factor}, {name}"
            status.update(what)
            wanted = replace(plain, load=factor, strategy=name, options=arguments.options_for(name, options))

            def load_of(number: int, wanted: Load = wanted) -> Load:
                return replace(wanted, jobs=source.read(plain.nodes, seed + number), seed=seed + number)

            if within is None:
                result = run_load(load_of(0))
                rows.append((factor, name, result.metrics))
                continue
            results, metrics = until_known(load_of, within, most_runs, _progress(status, what))
            result = results[-1]
            rows.append((factor, name, metrics))
            if metrics.all.turnaround_s.relative > within:
                known = f"{metrics.all.turnaround_s.relative:.1%}"
                status.console.print(f"{what}: only within {known} after {most_runs} runs", highlight=False)
    if as_json:
        print(json.dumps([{"load": load, "strategy": name, **metrics.as_dict()} for load, name, metrics in rows]))
    elif len(rows) == 1:
        Console().print(table_of_run(rows[0][2]))
    else:
        Console().print(table_of_loads(rows))
    if swf is not None:
        write_results_swf(swf, result.records, f"{plain.nodes} nodes under {policy}")
    if csv is not None:
        write_csv(csv, result.records)
    if figure is not None:
        draw_loads(rows, figure)


@app.command()
def make(
    out: Annotated[Path, typer.Argument(help="The trace goes here, in SWF.")],
    sidecar: Annotated[Path | None, typer.Option(help="Hybrid phases go here, one JSON object per line.")] = None,
    jobs: Annotated[int, typer.Option(help="How many jobs.")] = 2000,
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster that they are for.")] = 256,
    load: Annotated[float, typer.Option(help="Load factor.")] = DEFAULT_LOAD,
    hybrid: HybridShare = "0%",
    mix: Mix = "balanced",
    hybrid_longest: Longest = 4.0,
    hybrid_largest: Largest = None,
    seed: Seed = 0,
) -> None:
    """Write a trace of the Lublin-Feitelson model. It can be looked at, changed and run."""
    share = _share(hybrid, "--hybrid")
    if share and sidecar is None:
        raise InputError("SWF has no room for hybrid phases", hint="--sidecar FILE.jsonl")
    site = arguments.make_site(None, nodes, [], None)
    drawn = Source(jobs=jobs).read(nodes, seed)
    wanted = Load(
        drawn, site, load=load, arrivals="poisson", hybrid=share, mix=parse_mix(mix), seed=seed,
        hybrid_longest_s=hybrid_longest * 3600, hybrid_largest=hybrid_largest,
    )  # fmt: skip
    made, _follows = prepare(wanted)
    write_swf(out, made, f"{nodes} nodes")
    if sidecar is not None:
        write_sidecar(sidecar, made)
    print(f"{len(made)} jobs, {sum(job.hybrid is not None for job in made)} of them hybrid, in {out}")
