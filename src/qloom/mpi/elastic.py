"""For MPI programs that change their size while they run, in the manner of DMR, with any MPI.

The program registers its state once and calls `check`, `expand` or `minimise` where it could be stopped: its safe
points. When its size is to change, the state is saved, the ranks end, and the root (`qloom.mpi.root`) starts the
program again on the new nodes, where `register` gives the state back. Program and root speak to each other by notes:
small files in a directory that both see.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from qloom.journal.results import write_atomically
from qloom.mpi.oneworld import checked_world
from qloom.mpi.state import SavedState, SplitArray

__all__ = ["Elastic", "SplitArray"]

ALL = 2**31  # more than any site has
LOOK_S = 0.05  # safe points may come often, and a look at a shared file system is not free
POLL_S = 0.01
SETTLE_S = 5.0  # the root gives nodes back at once; this is for the case that it has died

DIRECTORY, NODES = "QLOOM_ELASTIC", "QLOOM_ELASTIC_NODES"  # variables by which ranks find their root
WISH = "wish.json"  # rank 0: {"number", "nodes"}
# The root: {"nodes": how many to go on with, "wish": the last one it has settled, "least", "most",
#            "brought": how many were wished for when these ranks were started}
OFFER = "offer.json"
ASKED = "asked.json"  # the resource manager: {"nodes"}
LEFT = "left.json"  # rank 0: the state is saved and the ranks end, to go on elsewhere
STATE = "state"


class Elastic:
    """The program's side. All methods are collective. Without a root the size just never changes."""

    def __init__(self, comm: Any = None, *, every_s: float = 0.0) -> None:
        """`every_s` is the inhibitor: the size does not change again sooner than that after the ranks started."""
        self._comm = comm = comm or checked_world()
        self._every_s = every_s
        self._began = time.monotonic()
        where = os.environ.get(DIRECTORY)
        self._directory = Path(where) if where else None
        self.nodes = int(os.environ.get(NODES, "1"))
        self._wishes, self._wished = 0, self.nodes
        self._brought: int | None = None
        self._looked = 0.0
        self._state = SavedState(comm, self._directory / STATE if self._directory else None)

    def register(self, **initial: Any) -> SimpleNamespace:
        """The state, as an object with these names: `initial` at first, later what was saved."""
        self._state.register(initial)
        return self._state.values

    def save(self) -> None:
        """Save the state now, against a crash; a change of size does it by itself."""
        self._state.save()

    def check(self) -> None:
        """A safe point: if the size is to change, this does not return and the program starts anew elsewhere."""
        self._safe_point(None, 0.0)

    def expand(self, nodes: int = ALL, within_s: float = 0.0) -> None:
        """Ask for more nodes (as many as allowed, unless given), then a safe point.

        Waits at most `within_s` for them. If they come later, that is seen at a later safe point; if fewer come, the
        program goes on with those.
        """
        self._safe_point(nodes, within_s)

    def shrink(self, nodes: int) -> None:
        """Ask to go on with fewer nodes, then a safe point."""
        self._safe_point(nodes, SETTLE_S)

    def minimise(self) -> None:
        """Ask to go on with as few nodes as allowed, before a quantum phase for example, then a safe point."""
        self._safe_point(0, SETTLE_S)

    def stay(self) -> None:
        """Take back a wish for nodes that have not come yet, then a safe point."""
        self._safe_point(self.nodes, 0.0)

    def _safe_point(self, wish: int | None, within_s: float) -> None:
        leave = None
        if self._directory is not None and self._comm.rank == 0:
            leave = self._look(self._directory, wish, within_s)
        if not self._comm.bcast(leave):
            return
        self._state.save()
        if self._comm.rank == 0 and self._directory is not None:
            write_note(self._directory, LEFT, nodes=self.nodes)
        self._comm.Barrier()
        raise SystemExit(0)  # the end of these ranks, not of the program

    def _look(self, directory: Path, wish: int | None, within_s: float) -> bool:
        """Rank 0: leave a wish, and see whether the root has other nodes for us."""
        until = time.monotonic() + within_s
        if wish is None and time.monotonic() - self._looked < LOOK_S:
            return False
        self._looked = time.monotonic()
        offer = read_note(directory, OFFER)
        if wish is not None and offer["nodes"] == self.nodes:
            self._wish(directory, max(offer["least"], min(wish, offer["most"])), offer)
        while True:
            inhibited = time.monotonic() - self._began < self._every_s
            if offer["nodes"] != self.nodes and not (inhibited and offer["nodes"]):
                return True
            if inhibited or offer["wish"] >= self._wishes or time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
            offer = read_note(directory, OFFER)

    def _wish(self, directory: Path, nodes: int, offer: dict[str, Any]) -> None:
        """Request a number of nodes from the root, unless that is what was requested last."""
        if self._brought is None:
            self._brought = offer["brought"]
            if nodes == self._brought:
                return  # we are here because of this very wish, with as many nodes as there were
        is_open = self._wishes > offer["wish"]
        if nodes != (self._wished if is_open else self.nodes):
            self._wishes += 1
            self._wished = nodes
            write_note(directory, WISH, number=self._wishes, nodes=nodes)


# Notes


def read_note(directory: Path, name: str) -> dict[str, Any]:
    """What a note says; empty if there is none."""
    try:
        content: dict[str, Any] = json.loads((directory / name).read_bytes())
        return content
    except FileNotFoundError:
        return {}


def write_note(directory: Path, name: str, **content: Any) -> None:
    """Replace the previous note."""
    write_atomically(directory / name, json.dumps(content).encode())


def remove_notes(directory: Path, *names: str) -> None:
    """Remove notes."""
    for name in names:
        (directory / name).unlink(missing_ok=True)
