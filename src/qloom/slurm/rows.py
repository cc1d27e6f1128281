"""What `squeue` prints about jobs, read.

Columns, not JSON: they are the same from Slurm 22.05 to 25.05, and `squeue --json` of 22.05 sends the jobs of all
users, some kilobytes each, whatever it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from qloom.slurm.hostlist import expand
from qloom.slurm.states import State, read_state

SEPARATOR = "|"
FIELDS = ("%i", "%T", "%S", "%e", "%N", "%j", "%k", "%r")  # id, state, start, end, nodes, name, comment, reason
FORMAT = SEPARATOR.join(FIELDS)


@dataclass(frozen=True)
class Row:
    """One job, or one component of a het job (`12+1`), as the controller knows it."""

    id: str
    state: State
    start_s: int | None  # of the epoch, as Slurm keeps it: whole seconds
    end_s: int | None
    nodes: tuple[str, ...]
    name: str
    comment: str
    reason: str

    @property
    def whole(self) -> str:
        """The id of the job that it is a component of."""
        return self.id.partition("+")[0]


def read_rows(text: str) -> list[Row]:
    """The jobs in the output of `squeue -h -o FORMAT`, with times as seconds of the epoch."""
    return [_read_row(line) for line in text.splitlines() if line.count(SEPARATOR) >= len(FIELDS) - 1]


def _read_row(line: str) -> Row:
    id, state, start, end, nodes, rest = line.split(SEPARATOR, 5)
    named, _, reason = rest.rpartition(SEPARATOR)
    name, _, comment = named.partition(SEPARATOR)  # users may put anything into a comment
    return Row(
        id, read_state(state), _seconds(start), _seconds(end), tuple(expand(nodes)), name, _or_none(comment), reason
    )


def _seconds(text: str) -> int | None:
    return int(text) if text.isdigit() else None  # else N/A, NONE or Unknown


def _or_none(text: str) -> str:
    return "" if text == "(null)" else text
