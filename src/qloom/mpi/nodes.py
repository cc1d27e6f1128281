"""The nodes that a root holds for its program: what any kind of them can do, and those of this machine."""

from __future__ import annotations

from typing import Protocol

from qloom.mpi.launch import Launch, mpiexec


class Nodes(Protocol):
    """Nodes in use by the ranks, and perhaps a larger set that was asked for.

    `take` and `shrink` are called between two starts of the ranks, never under their feet.
    """

    @property
    def in_use(self) -> int:
        """How many nodes the ranks have."""

    def begin(self, nodes: int) -> None:
        """Use nodes that are there, or ask for them; `in_use` is 0 until they were taken."""

    def launch(self, ranks_per_node: int) -> Launch:
        """How ranks are started on the nodes in use."""

    def ask(self, least: int, most: int) -> None:
        """Ask for a larger set of nodes to go over to, without waiting."""

    def arrived(self) -> int | None:
        """How many nodes there are to go over to; None as long as there are none."""

    def withdraw(self) -> None:
        """Stop asking, and give back what came meanwhile."""

    def take(self) -> None:
        """Go over to what arrived and give back what is not used any more."""

    def shrink(self, nodes: int) -> None:
        """Keep only that many."""

    def end(self, *, failed: bool = False) -> None:
        """Give everything back, for a program that ended well or `failed`. May be called again."""


class LocalNodes:
    """Slots of this machine: there are as many as one says."""

    def __init__(self) -> None:
        self.in_use = 0
        self._arrived: int | None = None

    def begin(self, nodes: int) -> None:
        """There at once."""
        self.in_use = nodes

    def launch(self, ranks_per_node: int) -> Launch:
        """By mpiexec."""
        return mpiexec(self.in_use * ranks_per_node)

    def ask(self, least: int, most: int) -> None:
        """Granted at once."""
        self._arrived = most

    def arrived(self) -> int | None:
        """What was asked for."""
        return self._arrived

    def withdraw(self) -> None:
        """Nothing to give back."""
        self._arrived = None

    def take(self) -> None:
        """Go over to what was asked for."""
        self.in_use, self._arrived = self._arrived or self.in_use, None

    def shrink(self, nodes: int) -> None:
        """Keep only that many."""
        self.in_use = nodes

    def end(self, *, failed: bool = False) -> None:
        """Nothing to give back."""
