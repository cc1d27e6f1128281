"""The classical component (HPE's server): meets the quantum one over a port, then gives the QPU back and goes on."""

import os
from pathlib import Path

from mpi4py import MPI

from qloom.mpi import ports

comm = MPI.COMM_WORLD
with ports.accept(Path.cwd(), within_s=60) as qpu:
    if comm.rank == 0:
        items = [{"size": 6, "bias": bias} for bias in (1, 2, 3)]
        out = [qpu.submit(item) for item in items]  # several work items are out at once
    meanwhile = comm.allreduce(sum(range(comm.rank, 10_000, comm.size)))  # overlaps with the quantum work
    if comm.rank == 0:
        results = [pending.result(within_s=60) for pending in out]
        print(f"results {results}, classical sum {meanwhile}", flush=True)

# Disconnected: the QPU can go while the classical work goes on.
if comm.rank == 0:
    print("released" if ports.release_qpu() else "no het job: nothing to release", flush=True)
remaining = comm.allreduce(comm.rank)
print(
    f"rank {comm.rank} of {comm.size} on {os.environ.get('SLURMD_NODENAME', 'this machine')}: {remaining}", flush=True
)
