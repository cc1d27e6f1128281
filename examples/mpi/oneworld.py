"""A het job as one MPI world: the last rank, on the QPU's node, samples; the others work meanwhile.

On Slurm:  sbatch oneworld.sh          On this machine:  mpiexec -n 3 python -m mpi4py oneworld.py
"""

import os

from qloom.mpi import oneworld

ITERATIONS = 3
WHERE = os.environ.get("SLURMD_NODENAME", "this machine")


def execute(item):
    """What the QPU does with a work item: here, an exact minimum of a small QUBO."""
    best = min(range(2 ** item["size"]), key=lambda bits: energy(item["weights"], bits))
    return {"bits": best, "energy": energy(item["weights"], best), "node": WHERE}


def energy(weights, bits):
    """The value of a QUBO with `weights` for the given bits."""
    return sum(w for (i, j), w in weights.items() if bits >> i & 1 and bits >> j & 1)


def classical(qpu, comm):
    """What the classical ranks do: rank 0 hands out items, all work meanwhile."""
    result, found = None, []
    for iteration in range(ITERATIONS):
        if comm.rank == 0:
            weights = {(i, i): -1 - iteration for i in range(6)} | {(i, i + 1): 2 for i in range(5)}
            pending = qpu.submit({"size": 6, "weights": weights})
        meanwhile = comm.allreduce(sum(range(comm.rank, 10_000, comm.size)))
        if comm.rank == 0:
            result = pending.result(within_s=60)
            found.append(result["energy"])
        result = comm.bcast(result)
    if comm.rank == 0:
        print(f"energies {found}, classical sum {meanwhile}, QPU rank on {result['node']}", flush=True)
    comm.Barrier()
    print(f"classical rank {comm.rank} on {WHERE}", flush=True)


if __name__ == "__main__":
    oneworld.run(classical, execute)
