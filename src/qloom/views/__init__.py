"""What people see of a run, all of it computed from the journal."""
