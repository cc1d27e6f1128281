"""Pulser in front of a QPU: `job.pulser_backend(sequence)` in a program, `QloomBackend(sequence)` elsewhere.

A Pulser job is a task, or a quantum call of the job. `batches.py` has what Pulser asks of a connection,
`connections.py` the connections to a broker and to a job, and the backend over them.
"""

from qloom.interop.pulser.batches import SequenceConnection
from qloom.interop.pulser.connections import DEFAULT_RUNS, JobConnection, QloomBackend, QloomConnection

__all__ = ["DEFAULT_RUNS", "JobConnection", "QloomBackend", "QloomConnection", "SequenceConnection"]
