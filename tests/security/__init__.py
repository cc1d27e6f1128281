"""Attacks on the broker and the command line from outside: over HTTP, raw sockets and real processes."""
