"""Slurm as a library: its commands, what they print, node lists, tags, reaping; without runs or strategies."""
