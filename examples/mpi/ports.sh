#!/bin/bash
#SBATCH -p compute -N 2 -n 2 -t 5
#SBATCH hetjob
#SBATCH -p quantum -N 1 -n 1 --gres=qpu:1 -t 5
# Two worlds that meet over a port. When the server releases the QPU, the second step ends with its component.
srun --het-group=0 --mpi=pmi2 --kill-on-bad-exit=1 python -m mpi4py server.py &
server=$!
srun --het-group=1 --mpi=pmi2 --kill-on-bad-exit=1 python -m mpi4py client.py &
wait $server
