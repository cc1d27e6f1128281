"""Runs the workflow of a program by StreamFlow, and keeps the same journal as the built-in engine does."""
