"""An MPI program that grows for its classical phase and shrinks before its quantum one, again and again.

On this machine:  qloom mpi run --nodes 1-3 elastic.py
On Slurm:         qloom mpi run --nodes 1-3 --world slurm elastic.py
"""

import sys
import time

import numpy
from mpi4py import MPI

from qloom.mpi.elastic import Elastic, SplitArray

iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 3
comm = MPI.COMM_WORLD
run = Elastic(comm)
state = run.register(
    iteration=0,
    phase="classical",
    sizes=[],
    field=SplitArray(1000, lambda first, last: numpy.arange(first, last, dtype=float)),  # this rank's rows
)
while state.iteration < iterations:
    if state.phase == "classical":
        run.expand(within_s=5)  # goes on with what it has after that
        state.field += 1.0
        state.sizes = [*state.sizes, run.nodes]
        state.phase = "quantum"
    run.minimise()
    time.sleep(0.1)  # the quantum phase, with as few nodes as it may have
    state.phase = "classical"
    state.iteration += 1

total = comm.reduce(float(state.field.sum()))
if comm.rank == 0:
    print(f"total {total}, classical phases on {state.sizes} nodes, end on {run.nodes}", flush=True)
