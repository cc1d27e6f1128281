"""One job: the calls of a program, its blocks, its allocations and its spare work."""
