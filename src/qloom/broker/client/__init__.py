"""Clients of a broker: asynchronous, synchronous, and the one that runs use."""
