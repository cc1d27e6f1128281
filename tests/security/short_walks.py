"""The broker of `tests.broker.service`, for which 20 tasks make a long queue."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from qloom.broker.config import read_config
from qloom.broker.serve import serve
from qloom.broker.server import gate
from tests.broker.service import DirectoryDevice

gate.WALK_TASKS = 20

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    serve(read_config(Path(sys.argv[1])), DirectoryDevice)
