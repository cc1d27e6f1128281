"""How a module of this package is run by another interpreter, or this one, in a process of its own.

The package is lent without the other packages that lie beside it: an environment made for a vendor's packages must
not see ours, and needs nothing of qloom installed.
"""

from __future__ import annotations

from pathlib import Path

import qloom.errors

LEND = (
    "import sys, types, runpy; lent = types.ModuleType('qloom'); lent.__path__ = [sys.argv.pop(1)]; "
    "sys.modules['qloom'] = lent; runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)


def command(python: str, module: str) -> tuple[str, ...]:
    """The words that run `module`; the folder that the broker was started in is not searched for modules (-P)."""
    return (python, "-P", "-c", LEND, str(Path(qloom.errors.__file__).parent), module)
