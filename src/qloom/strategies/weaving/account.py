"""How long nodes may idle that are there before they are needed: a part of the time for which required tasks ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

IDLE = 0.1  # of the node-seconds that required tasks have run so far


class NodeSeconds:
    """Node-seconds that pass while nodes are counted."""

    def __init__(self) -> None:
        self._passed_s = 0.0
        self._nodes = 0
        self._since_s = 0.0

    def so_far(self) -> float:
        """All that have passed until now."""
        return self._passed_s + (self._nodes * (_now_s() - self._since_s) if self._nodes else 0.0)

    def count(self, nodes: int) -> None:
        """Count this many nodes from now on."""
        if nodes != self._nodes:
            self._passed_s, self._since_s, self._nodes = self.so_far(), _now_s(), nodes

    @contextmanager
    def counting(self, nodes: int) -> Iterator[None]:
        """Count so many nodes more for a while."""
        self.count(self._nodes + nodes)
        try:
            yield
        finally:
            self.count(self._nodes - nodes)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class IdleAccount:
    """What the tasks of one job have run and its nodes have idled.

    A wrong prediction lets nodes idle, and there may be one in every iteration; together they cannot cost more than
    this. Spare work does not count, since it may turn out to be useless.
    """

    def __init__(self) -> None:
        self.ran = NodeSeconds()
        self.idled = NodeSeconds()

    def left_s(self, nodes: int) -> float:
        """How long so many nodes may idle from now on."""
        return max(0.0, IDLE * self.ran.so_far() - self.idled.so_far()) / nodes
