"""The append-only record of a run. Accounting, timelines, replay and every view are read from it alone."""
