"""Record the cells anew, or say what has changed in them.

python -m tests.golden record         keep what the code of today does
python -m tests.golden diff           which cells differ from what is kept
python -m tests.golden diff CELL...   what differs there, row by row
python -m tests.golden show CELL...   the rows of cells as they are now
"""

from __future__ import annotations

import difflib
import sys

from tests.golden.cells import Cell, cells
from tests.golden.keep import digest_of, keep, kept_digests, kept_rows


def main(words: list[str]) -> int:
    """One command."""
    all_cells = cells()
    match words:
        case ["record"]:
            keep({name: cell() for name, cell in all_cells.items()})
            print(f"{len(all_cells)} cells kept")
            return 0
        case ["diff"]:
            return _moved(all_cells)
        case ["diff", *names]:
            rows = kept_rows()
            return max(_differences(name, rows.get(name, []), all_cells[name]()) for name in names)
        case ["show", *names]:
            for name in names:
                print(f"{name}\n  " + "\n  ".join(all_cells[name]()))
            return 0
    print(__doc__)
    return 2


def _moved(all_cells: dict[str, Cell]) -> int:
    digests = kept_digests()
    moved = [name for name, cell in all_cells.items() if digests.get(name) != digest_of(cell())]
    gone = [name for name in digests if name not in all_cells]
    for name in moved:
        print(name if name in digests else f"{name} (new)")
    for name in gone:
        print(f"{name} (gone)")
    print(f"{len(moved)} of {len(all_cells)} cells have moved")
    return 1 if moved or gone else 0


def _differences(name: str, before: list[str], now: list[str]) -> int:
    if before == now:
        print(f"{name}: nothing has changed")
        return 0
    changes = [line for line in difflib.ndiff(before, now) if line[0] in "-+"]
    fewer, more = (sum(line[0] == sign for line in changes) for sign in "-+")
    print(f"{name}: {fewer} rows are gone (-), {more} are new (+); before {len(before)}, now {len(now)}")
    print("\n".join(f"  {line}" for line in changes))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
