"""A flow as plain `sbatch --dependency` scripts, for sites without a workflow engine.

All steps share one folder, `work`. The last job of an iteration judges it, and submits the next one or what follows
the loop; nothing runs in between, and nobody has to stay logged in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from qloom.errors import InputError
from qloom.export.flow import ONE_NODE, Flow, Step, identifier
from qloom.export.folder import new_folder, write_files
from qloom.export.places import Places, placed, size_of

HEAD = "#!/bin/sh\n"
JUDGE = "judge"

SUBMIT = """# Sourced by the other scripts: submit STEP ITERATION [JOB:JOB...] prints the id of the job.
submit() {
    job=$(sbatch --parsable --kill-on-invalid-dep=yes --job-name="@NAME@-$1-$2" --output="logs/%x-%j.out" \\
        ${3:+--dependency=afterok:$3} --export="ALL,ITERATION=$2" "steps/$1.sh") || return
    echo "${job%%;*}"  # without the name of the cluster
}
"""

# What an earlier run left would be taken for this one's.
AFRESH = "[ ! -e work ] || { echo 'work is there from an earlier run: remove it first' >&2; exit 1; }\n"


def write_shell(directory: Path, flow: Flow, places: Places) -> list[str]:
    """The folder with the scripts; returns their names."""
    if places.site != "slurm":
        raise InputError("sbatch scripts are for a Slurm site", hint="--site slurm")
    flow = placed(flow, places)
    new_folder(directory)
    write_files(directory, flow)
    scripts = {
        "run.sh": _run(flow),
        "submit.sh": SUBMIT.replace("@NAME@", identifier(flow.name)),
        **{f"steps/{identifier(step.name)}.sh": _step(step, places) for step in flow.steps()},
    }
    if flow.loops:
        scripts["iteration.sh"] = _part(flow.body, '"$1"', f'submit {JUDGE} "$1" "$after" > /dev/null')
        scripts[f"steps/{JUDGE}.sh"] = _judge(flow, places)
        scripts["after.sh"] = _part(flow.after, '"$1"', "") if flow.after else f"{HEAD}:\n"
    scripts["README.md"] = _readme(flow)
    for name, text in scripts.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return list(scripts)


def _run(flow: Flow) -> str:
    phases = flow.before if flow.loops else (*flow.before, *flow.body, *flow.after)
    number = "0" if flow.loops else "1"
    first = 'sh iteration.sh 1 "$after"\n' if flow.loops else ""
    copying = "cp -R files/. work/\n" if flow.files else ""
    begin = f'set -eu\ncd "$(dirname "$0")"\n{AFRESH}mkdir -p work logs\n{copying}. ./submit.sh\n'
    return (
        f'{HEAD}# Submits the first jobs; they submit the others.\n{begin}after=""\n{_phases(phases, number)}{first}'
        "echo 'submitted: squeue --me shows the jobs, logs what they print'\n"
    )


def _part(phases: Sequence[Sequence[Step]], number: str, last: str) -> str:
    begin = 'set -eu\ncd "$(dirname "$0")"\n. ./submit.sh\nafter="${2:-}"\n'
    usage = "# ITERATION [JOB:JOB...]: submits these steps, after those jobs.\n"
    return f"{HEAD}{usage}{begin}{_phases(phases, number)}{last}\n"


def _phases(phases: Sequence[Sequence[Step]], number: str) -> str:
    """The jobs of a phase wait for all jobs of the one before."""
    lines = []
    for phase in phases:
        for place, step in enumerate(phase):
            lines.append(f'job{place}=$(submit {identifier(step.name)} {number} "$after")')
        lines.append('after="' + ":".join(f"$job{place}" for place in range(len(phase))) + '"')
    return "".join(f"{line}\n" for line in lines)


def _step(step: Step, places: Places) -> str:
    location = step.location
    words = list(step.words())
    if step.payload is not None and places.quantum == "broker":
        location = ONE_NODE
        words[3:3] = ["--send"]
    text = " ".join(_quoted(word) for word in words)
    broker = f"export QLOOM_BROKER={shlex.quote(places.broker)}\n" if places.broker and "--send" in words else ""
    return f"{HEAD}{_directives(step, location, places)}set -eu\ncd work\n{broker}exec {text}\n"


def _judge(flow: Flow, places: Places) -> str:
    text = " ".join(_quoted(word) for word in flow.judge_words("{iteration}"))
    step = Step(JUDGE, ONE_NODE)
    return (
        f"{HEAD}{_directives(step, ONE_NODE, places)}set -eu\n"
        f"proceed=$(cd work && {text})\n"
        'if [ "$proceed" = true ]; then\n    sh iteration.sh $((ITERATION + 1))\n'
        'else\n    sh after.sh "$ITERATION"\nfi\n'
    )


def _directives(step: Step, location: str, places: Places) -> str:
    options = {**places.locations[location], **size_of(step)}
    names = {name: re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", name) for name in options}
    lines = [
        f"#SBATCH --{names[name]}" + ("" if value is True else f"={value}")
        for name, value in options.items()
        if value not in ("", False)
    ]
    return "".join(f"{line}\n" for line in lines)


def _quoted(word: str) -> str:
    """A word as the shell reads it, with the number of the iteration left open."""
    parts = word.split("{iteration}")
    return '"$ITERATION"'.join(shlex.quote(part) if part else "" for part in parts) or "''"


def _readme(flow: Flow) -> str:
    steps = "".join(f"- `{step.name}` on `{step.location}`: `{' '.join(step.words())}`\n" for step in flow.steps())
    ends = f"\nThe loop ends after {flow.max_iterations} iterations at the latest.\n" if flow.loops else ""
    return f"""# {flow.name} as Slurm jobs

Written by `qloom export sh`. Submit it, and look at it:

    sh run.sh
    squeue --me

Files are in `work`, what steps print in `logs`. The steps call `qloom`, which has to be on the `PATH` where they run.
If a job fails, those that depend on it are cancelled. To run it again, remove `work` first.
{ends}
## Steps

{steps}"""
