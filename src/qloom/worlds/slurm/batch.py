"""Batch scripts that carry a driver into Slurm: it goes on with a run inside an allocation of its own."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qloom.ports import Request
from qloom.site import Site
from qloom.slurm.arguments import components, core

DRIVER_QPU = "QLOOM_DRIVER_QPU"  # tells a driver that the job around it is its own: DEVICE:HOLD:SHARES, or nothing,
CORE = "core"  # or that it has no more than a core
MARK = "qloom-submitted"  # not the tag of a driver: nobody reaps what waits for its turn


@dataclass(frozen=True)
class Batch:
    """One job that goes on with a run: what it asks for, and how its driver continues."""

    run: str
    driver: str
    request: Request | None  # None: a core for the driver, which asks for its allocations from there
    shares: int = 0
    after: str | None = None  # the job that hands the run on: only if it ends well is this one started

    def script(self, site: Site, directory: str) -> str:
        """The text for `sbatch`; `directory` is where its output goes."""
        asked = [core(site.slurm)] if self.request is None else components(site, self.request, self.shares)
        first, *others = asked
        lines = ["#!/usr/bin/env bash", *_directives([*first, *self._tags(directory)])]
        for component in others:
            lines += ["#SBATCH hetjob", *_directives(component)]
        if home := os.environ.get("QLOOM_HOME"):
            lines.append(f"export QLOOM_HOME={shlex.quote(str(Path(home).absolute()))}")
        lines.append(f"export {DRIVER_QPU}={shlex.quote(self._qpu())}")
        python = shlex.quote(site.slurm.python or sys.executable)
        lines.append(f"exec {python} -m qloom resume {shlex.quote(self.run)} --driver {self.driver} --quiet")
        return "\n".join(lines) + "\n"

    def _qpu(self) -> str:
        request = self.request
        if request is None:
            return CORE
        return f"{request.device}:{request.qpu.value}:{self.shares}" if self.shares else ""

    def _tags(self, directory: str) -> list[str]:
        tags = [
            f"--job-name=qloom.{self.run}",
            f"--comment={MARK} run={self.run}",
            f"--chdir={os.getcwd()}",  # where the user is: programs may name files beside them
            f"--output={directory}/slurm-%j.out",
            "--no-requeue",  # the journal says how far it came: qloom resume
        ]
        return tags + ([f"--dependency=afterok:{self.after}", "--kill-on-invalid-dep=yes"] if self.after else [])


def _directives(words: Sequence[str]) -> list[str]:
    return [f"#SBATCH {_quoted(word)}" for word in words]


def _quoted(word: str) -> str:
    """As sbatch reads it: quotes around what holds a blank."""
    name, equals, value = word.partition("=")
    return f'{name}{equals}"{value}"' if " " in value else word
