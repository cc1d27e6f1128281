/* Starts MPI on all ranks; then the last one ends as its argument says, and the others wait. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d is here\n", rank);
    fflush(stdout);
    if (rank == size - 1) {
        if (strcmp(argv[1], "SIGSEGV") == 0)
            raise(SIGSEGV);
        if (strcmp(argv[1], "SIGABRT") == 0)
            abort();
        if (strcmp(argv[1], "SIGKILL") == 0)
            raise(SIGKILL);
        if (strcmp(argv[1], "MPI_Abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    sleep(600);
    return 0;
}
