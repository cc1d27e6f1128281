"""Connectors for StreamFlow: QPUs behind a qloom broker, Slurm, and steps that may go to either."""
