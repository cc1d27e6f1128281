"""`python -m qloom.testbed DIRECTORY`: the supervisor of a testbed, started by `Testbed.up`."""

from qloom.testbed.supervisor import main

main()
