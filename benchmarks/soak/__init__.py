"""Honest and hostile clients against a real broker that is killed, drained and restarted. See `__main__`."""
