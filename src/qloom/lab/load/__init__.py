"""A cluster under load: traces, arrivals, the engine for rigid jobs, and what came of it."""
