"""MPI (extra `mpi`: mpich and mpi4py).

launch, rank    tasks that are programs or functions over k ranks
elastic         for MPI programs that change their size while they run; root holds the nodes for them
oneworld        the quantum component of a het job as the last rank of one world
ports           the quantum component as a world of its own, met over an MPI port
"""
