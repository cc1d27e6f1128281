"""Clustering aggregation: several clusterings of the same points, combined by a QPU.

`program` is the whole loop as a qloom program. Its steps are plain functions in the modules beside it.
"""

from qloom.clustering.program import program

__all__ = ["program"]
