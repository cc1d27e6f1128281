"""A real Slurm on this machine, in a private directory: `Testbed.up()`, `Testbed.down()`."""

from qloom.testbed.settings import TestbedSettings
from qloom.testbed.testbed import Testbed

__all__ = ["TestbedSettings", "Testbed"]
