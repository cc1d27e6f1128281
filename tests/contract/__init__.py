"""The same programs in every world."""

from qloom.worlds import WORLDS

HERE = [world for world in WORLDS if world != "slurm"]  # tests/slurm/test_contract.py has the same on a cluster
