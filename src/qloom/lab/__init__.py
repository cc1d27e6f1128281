"""The laboratory: schedulers, load, campaigns and the advisor, all in virtual time."""
