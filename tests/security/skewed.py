"""A broker on a machine whose clock is wrong: python -m tests.security.skewed broker.toml

`QLOOM_TEST_SKEW_S` seconds are added to the time of day before anything of the broker is imported.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

SKEW_S = float(os.environ.get("QLOOM_TEST_SKEW_S", "0"))
_time_s, _time_ns = time.time, time.time_ns
time.time = lambda: _time_s() + SKEW_S
time.time_ns = lambda: _time_ns() + int(SKEW_S * 1e9)

if __name__ == "__main__":
    from qloom.broker.config import read_config
    from qloom.broker.serve import serve
    from tests.broker.service import DirectoryDevice

    logging.basicConfig(level=logging.INFO)
    path = Path(sys.argv[1])
    serve(read_config(path), DirectoryDevice, lambda: read_config(path))
