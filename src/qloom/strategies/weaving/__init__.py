"""The parts of `weave`: what is expected, what is asked for and held, what is spare."""
