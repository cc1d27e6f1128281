"""Objects that Qiskit code is written against: a sampler, an estimator and a backend, of a job or of a broker.

`sampler.py`, `estimator.py` and `backend.py` are these objects; `expectation.py` is the estimator's mathematics;
`compiling.py` makes circuits fit a device; `transport.py` carries them there.
"""

from qloom.interop.qiskit.backend import QloomBackendV2
from qloom.interop.qiskit.estimator import DEFAULT_PRECISION, QloomEstimatorV2
from qloom.interop.qiskit.jobs import QloomJob
from qloom.interop.qiskit.sampler import DEFAULT_SHOTS, QloomSamplerV2

__all__ = ["DEFAULT_PRECISION", "DEFAULT_SHOTS", "QloomBackendV2", "QloomEstimatorV2", "QloomJob", "QloomSamplerV2"]
