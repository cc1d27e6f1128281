"""One run: its plan, its assembly, resuming it, and submitting it."""
