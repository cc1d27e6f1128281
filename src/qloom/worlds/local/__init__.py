"""This machine: nodes are slots for worker processes. Nothing to install, nothing to start."""
