"""`qloom submit`: give a run to Slurm, driver and all."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from qloom.cli import running, values
from qloom.programs.load import load_program
from qloom.runs.runner import Plan
from qloom.strategies import STRATEGIES


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command()(submit)


def submit(
    program: running.ProgramArgument,
    strategy: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(STRATEGIES.built_in)}, or auto; also with another hold of the QPU: malleable+share."
        ),
    ] = "offload",
    driver: Annotated[
        str | None,
        typer.Option(
            help="in-job: the first node hosts it. beside: one core of its own. "
            "chain: none, each phase's job submits the next. "
            "[default: chain for strategies that hold nothing between phases, else in-job]"
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="The most nodes that the job may hold. [default: 3]")] = None,
    settings: running.Set = [],  # noqa: B006  typer makes a new one for each call
    option: running.Option = [],  # noqa: B006
    qpu: running.Qpu = [],  # noqa: B006
    broker: running.Broker = None,
    seed: running.Seed = 0,
    site: running.SiteFile = None,
    slurm: running.Slurm = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")] = False,
    as_json: running.Json = False,
) -> None:
    """Give a run to Slurm and return: no process stays here."""
    from qloom.runs.submit import script, usual_driver
    from qloom.runs.submit import submit as submit_run

    plan = Plan(
        load_program(program),
        values.parse_settings(settings),
        strategy=strategy,
        options=values.parse_options(option),
        world="slurm",
        site=running.behind(broker, values.make_site(site, nodes, qpu, None, slurm)),
        seed=seed,
    )
    if strategy == "auto":
        from qloom.cli.advise import choose

        plan = choose(plan, shown=not as_json)
    driver = driver or usual_driver(plan)
    if dry_run:
        print(script(plan, driver), end="")
        return
    submitted = submit_run(plan, driver)
    if as_json:
        print(json.dumps({"run": submitted.run, "slurm_job": submitted.job}))
        return
    print(submitted.run)
    said = f"submitted as Slurm job {submitted.job}; qloom explain {submitted.run} says how it stands"
    Console(stderr=True, highlight=False).print(said, soft_wrap=True)
