"""A real Slurm on this machine, in a private directory: `Testbed.up()`, `Testbed.down()`."""

from qloom.testbed.settings import Settings
from qloom.testbed.testbed import Testbed

__all__ = ["Settings", "Testbed"]
