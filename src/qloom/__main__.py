"""`python -m qloom`, for where its script is not on the path."""

from qloom.cli.entry import run

run()
