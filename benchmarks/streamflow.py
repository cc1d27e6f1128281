"""Time per step beyond bare Slurm: StreamFlow's stock Slurm connector, qloom's connector, and the built-in engine.

    python -m benchmarks.streamflow [--steps 12] [--rounds 5]

A chain of steps, each of which makes one empty file, on one testbed that this starts (and ends) itself. All are
timed alike, from outside: from the moment at which the chain is started until Slurm has no job of it left, for a
chain of `--steps` steps and for one of a single step. A step takes the difference over the further steps. So neither
the start of an engine nor its end counts, and everything in between does: request, grant, the step, fetching what it
made, and the end of its job.

What differs is what a step asks Slurm for, so there are two bare chains, a loop in the shell each. StreamFlow, by
either connector, submits a batch job for each step (`sbatch`, and a look at its state every 5 ms in the bare chain,
every second in the stock connector, which allows no less). The built-in engine asks for an allocation for each step
(`salloc`), starts a worker on it with `srun` and releases it; the bare chain is `salloc srun`. Each is compared with
the bare chain that asks for the same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.agreement import say

import qloom
from qloom.export import Places, flow_of, write_cwl
from qloom.lab.campaign.manifest import as_list, circumstances
from qloom.streamflow.process import find_streamflow, step_environment
from qloom.testbed import Testbed, TestbedSettings

PHASE = """[[phase]]
kind = "classical"
name = "step{number}"
[[phase.task]]
command = ["touch", "made{number}"]
outputs = ["made{number}"]
"""
POLL_S = 0.005
BARE = {"StreamFlow, stock connector": "bare sbatch", "StreamFlow, qloom-slurm": "bare sbatch"}
BARE["built-in engine"] = "bare salloc"

Chain = Callable[[int, Path], Callable[[], object]]  # steps, an empty folder -> what is timed


class Benchmark:
    """The chains, on one testbed."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self.chains: dict[str, Chain] = {
            "bare sbatch": self.by_sbatch,
            "bare salloc": self.by_salloc,
            "StreamFlow, stock connector": lambda steps, folder: self.by_streamflow(steps, folder, stock=True),
            "StreamFlow, qloom-slurm": lambda steps, folder: self.by_streamflow(steps, folder, stock=False),
            "built-in engine": self.by_qloom,
        }

    def by_sbatch(self, steps: int, folder: Path) -> Callable[[], object]:
        """One batch job after the other, looked at all the time."""

        def chain() -> None:
            for number in range(steps):
                words = ("--parsable", "--partition=compute", f"--chdir={folder}", "--output=/dev/null")
                job = self._testbed.run("sbatch", *words, f"--wrap=touch made{number}").strip()
                while "JobState=COMPLETED" not in self._testbed.run("scontrol", "show", "-o", "job", job):
                    time.sleep(POLL_S)

        return chain

    def by_salloc(self, steps: int, folder: Path) -> Callable[[], object]:
        """One allocation after the other, with a step in it; salloc tells its end, without a look."""

        def chain() -> None:
            for number in range(steps):
                words = ("--quiet", "--partition=compute", f"--chdir={folder}", "srun", "touch", f"made{number}")
                self._testbed.run("salloc", *words)

        return chain

    def by_streamflow(self, steps: int, folder: Path, *, stock: bool) -> Callable[[], object]:
        """The chain as StreamFlow runs it; its files are written before."""
        write_cwl(folder / "flow", flow_of(str(_job_file(steps, folder)), {}), Places("slurm", stock=stock))
        command = [str(find_streamflow()), "run", "streamflow.yml", "--outdir", "results"]
        environment = step_environment()

        def chain() -> None:
            done = subprocess.run(
                command, cwd=folder / "flow", env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(f"StreamFlow failed: {done.stdout}{done.stderr}")

        return chain

    def by_qloom(self, steps: int, folder: Path) -> Callable[[], object]:
        """The chain as `qloom run --strategy workflow` runs it."""
        file = _job_file(steps, folder)

        def chain() -> None:
            outcome = qloom.run(str(file), strategy="workflow", world="slurm")
            if outcome.errors:
                raise outcome.errors[0]

        return chain

    def step_s(self, name: str, steps: int, folder: Path) -> float:
        """What each further step of a chain takes."""
        one_s = self._timed(self.chains[name](1, _made(folder / "one")))
        all_s = self._timed(self.chains[name](steps, _made(folder / "all")))
        return (all_s - one_s) / (steps - 1)

    def _timed(self, chain: Callable[[], object]) -> float:
        began_s = time.monotonic()
        chain()
        while self._testbed.run("squeue", "--noheader", "--format=%i").strip():
            time.sleep(POLL_S)
        return time.monotonic() - began_s


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _job_file(steps: int, folder: Path) -> Path:
    file = folder / "chain.toml"
    file.write_text('name = "chain"\n' + "".join(PHASE.format(number=number) for number in range(steps)))
    return file


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    began = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="qloom-benchmark-") as temporary,
        Testbed.up(f"bench-streamflow-{os.getpid()}", TestbedSettings(), attached=True) as testbed,
    ):
        os.environ |= {**testbed.environment, "QLOOM_HOME": f"{temporary}/home"}
        os.environ.pop("QLOOM_BROKER", None)  # runs have a queue of their own
        benchmark = Benchmark(testbed)
        taken: dict[str, list[float]] = {name: [] for name in benchmark.chains}
        for number in range(asked.rounds):  # in turn, so that the machine's other work is shared
            for place, (name, values) in enumerate(taken.items()):
                say(f"round {number + 1} of {asked.rounds}, {name}")
                values.append(benchmark.step_s(name, asked.steps, Path(temporary) / f"{number}-{place}"))
    print(f"Chains of {asked.steps} steps, medians of {asked.rounds} (and their range). ", end="")
    print(f"Load average {began:.1f} before.\n")
    print("| | s a step | beyond bare s | of stock |\n|---|---|---|---|")
    medians = {name: statistics.median(values) for name, values in taken.items()}
    stock_s = medians["StreamFlow, stock connector"] - medians["bare sbatch"]
    for name, values in taken.items():
        beyond_s = medians[name] - medians[BARE[name]] if name in BARE else None
        told = ["", ""] if beyond_s is None else [f"{beyond_s:.2f}", f"{beyond_s / stock_s:.2f}"]
        print(f"| {name} | {medians[name]:.2f} ({min(values):.2f} to {max(values):.2f}) | {' | '.join(told)} |")


if __name__ == "__main__":
    main()
    print(f"\n{as_list(circumstances())}", end="")
