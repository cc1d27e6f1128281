"""QPUs in a site's Slurm: configuration lines, and what happens when a device is away."""

from qloom.slurmsite.config import SiteQpu, parse_qpus, site_files
from qloom.slurmsite.state import set_device_state

__all__ = ["SiteQpu", "parse_qpus", "set_device_state", "site_files"]
