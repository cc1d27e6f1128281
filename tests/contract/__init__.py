"""The same programs in every world; those on a cluster are in tests/slurm/test_contract.py."""

from qloom.worlds import WORLDS

HERE = [world for world in WORLDS.built_in if world != "slurm"]
