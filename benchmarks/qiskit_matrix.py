"""VQE and QAOA under every strategy in every world: whether all give one result, and how long a run takes.

python -m benchmarks.qiskit_matrix [--worlds virtual,local,...] [--repeats 3] [--cells FILE]

Each cell is a `qloom run` with a time limit. `+broker` is the world with its QPU behind a broker, which is started
for it (virtual time has its own QPUs and takes no broker); `slurm` starts a testbed. Every cell that has ended is
added to FILE at once: a command that was interrupted, started again, runs only the cells that are missing or have
failed at this commit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from qloom.lab.campaign.manifest import as_list, circumstances, commit
from qloom.strategies import STRATEGIES
from qloom.testbed import Testbed, TestbedSettings

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "examples" / "textbook" / "qiskit_programs.py"
SMALL = {"vqe": "maxiter=12", "qaoa": "points=2"}
WORLDS = ("virtual", "local", "local+broker", "slurm", "slurm+broker")
QPU = "qpu"  # as the testbed's gres is called
SITE = f'nodes = 2\n[[qpus]]\nname = "{QPU}"\ntechnology = "photonic"\n'
DEVICE = f'[[devices]]\nkind = "qaoa"\nname = "{QPU}"\nset_up_s = 0.0\nper_shot_s = 0.0\n'
LIMIT_S = 300.0
STARTS_S = 60.0
SCHEDULER = ("SLURM", "SBATCH", "SALLOC", "SRUN", "QLOOM_BROKER")


@dataclass(frozen=True)
class MatrixCell:
    """A run that has ended; `result` is what it printed, or None if it failed."""

    commit: str
    world: str
    strategy: str
    program: str
    repeat: int
    seconds: float
    result: str | None
    error: str = ""

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Where it stands in the matrix."""
        return self.world, self.strategy, self.program, self.repeat


def read_cells(file: Path, of_commit: str) -> dict[tuple[str, str, str, int], MatrixCell]:
    """The cells of a commit that ended well; a line that was cut off counts as none."""
    found = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError, TypeError):
            cell = MatrixCell(**json.loads(line))
            if cell.commit == of_commit and cell.result is not None:
                found[cell.place] = cell
    return found


@contextlib.contextmanager
def entered(world: str, folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Arguments and environment of a run in this world, for as long as what it needs is there."""
    name, _, broker = world.partition("+")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(SCHEDULER)}
    environment["QLOOM_HOME"] = str(folder / "home")
    site = folder / "site.toml"
    site.write_text(SITE)
    with contextlib.ExitStack() as stack:
        if name == "slurm":
            settings = TestbedSettings(nodes=3, broker=False)
            testbed = stack.enter_context(Testbed.up(f"matrix-{os.getpid()}", settings, attached=True))
            environment |= testbed.environment
        if broker:
            site.write_text(f'nodes = 2\nbroker = "{stack.enter_context(served(folder))}"\n')
        yield ["--world", name, "--site", str(site)], environment


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a broker with one gate machine."""
    socket = folder / "broker.sock"
    config = folder / "broker.toml"
    config.write_text(f'listen = ["unix:{socket}"]\nstore = "{folder}/broker.db"\n{DEVICE}')
    words = [sys.executable, "-m", "qloom", "broker", "serve", "--config", str(config), "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as service:
        try:
            deadline_s = time.monotonic() + STARTS_S
            while not socket.exists():
                if service.poll() is not None or time.monotonic() > deadline_s:
                    raise SystemExit("the broker did not start")
                time.sleep(0.05)
            yield f"unix:{socket}"
        finally:
            service.terminate()


def run_cell(
    place: tuple[str, str, str, int], of_commit: str, arguments: list[str], environment: dict[str, str]
) -> MatrixCell:
    """Run one cell from outside, as a user does."""
    world, strategy, program, repeat = place
    words = ["run", f"{PROGRAMS}:{program}", "--strategy", strategy, "--set", SMALL[program], *arguments, "--quiet"]
    begun = time.perf_counter()
    result, error = None, ""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "qloom", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode == 0:
            result = done.stdout.strip()
        else:
            error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        error = f"not over after {LIMIT_S:.0f} s"
    return MatrixCell(of_commit, world, strategy, program, repeat, time.perf_counter() - begun, result, error)


def carry_out(worlds: list[str], repeats: int, file: Path) -> list[MatrixCell]:
    """Run what is missing and add each cell to the file."""
    of_commit = commit()
    known = read_cells(file, of_commit)
    wanted = [(w, s, p, n) for w in worlds for s in STRATEGIES for p in SMALL for n in range(1, repeats + 1)]
    cells = [known[place] for place in wanted if place in known]
    for world in worlds:
        missing = [place for place in wanted if place[0] == world and place not in known]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as folder, entered(world, Path(folder)) as (arguments, environment):
            for place in missing:
                cells.append(run_cell(place, of_commit, arguments, environment))
                with open(file, "a") as lines:
                    lines.write(json.dumps(asdict(cells[-1])) + "\n")
                outcome = cells[-1].result or cells[-1].error
                words = f"{' '.join(map(str, place))}: {cells[-1].seconds:.1f} s, {outcome}"
                print(f"{len(cells)}/{len(wanted)} {words}", file=sys.stderr)
    return cells


def main() -> None:
    """Print a line for each strategy and program, a column for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cells", type=Path, default=Path("qiskit-matrix.jsonl"))
    given = parser.parse_args()
    worlds = given.worlds.split(",")
    if unknown := [world for world in worlds if world not in WORLDS]:
        parser.error(f"unknown world {unknown[0]!r} (choose of {', '.join(WORLDS)})")
    cells = carry_out(worlds, given.repeats, given.cells)
    expected = {name: next((cell.result for cell in cells if cell.program == name), None) for name in SMALL}
    for name, result in expected.items():
        print(f"{name}: {result}")
    print(f"\n| strategy | program | {' | '.join(worlds)} |\n|---|---|{'---|' * len(worlds)}")
    for strategy in STRATEGIES:
        for name in SMALL:
            row = []
            for world in worlds:
                runs = [
                    cell for cell in cells if (cell.world, cell.strategy, cell.program) == (world, strategy, name)
                ]
                others = [cell.result or cell.error for cell in runs if cell.result != expected[name]]
                same = f"same, {statistics.median(cell.seconds for cell in runs):.1f} s"
                row.append(f"**{others[0]}**" if others else same)
            print(f"| {strategy} | {name} | {' | '.join(row)} |")
    differ = sum(cell.result is None or cell.result != expected[cell.program] for cell in cells)
    print(f"\n{len(cells)} runs, {differ} with another result; seconds are medians of {given.repeats}\n")
    print(as_list(circumstances()))
    print(f"- load: {os.getloadavg()[1]:.1f} over the last five minutes")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
