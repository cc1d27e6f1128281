"""Campaigns: a matrix of runs, what came of them, and how that compares with what others have published."""
