"""A cluster under Slurm: allocations are Slurm jobs, nodes are driven by one step each."""
