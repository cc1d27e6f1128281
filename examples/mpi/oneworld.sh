#!/bin/bash
#SBATCH -p compute -N 2 -n 2 -t 5
#SBATCH hetjob
#SBATCH -p quantum -N 1 -n 1 --gres=qpu:1 -t 5
# One world over both components; ranks are numbered in their order, so the last one is on the QPU's node.
# (`python -m mpi4py` ends all ranks as soon as one of them raises.)
run="python -m mpi4py oneworld.py"
exec srun --mpi=pmi2 --kill-on-bad-exit=1 --het-group=0 $run : --het-group=1 $run
