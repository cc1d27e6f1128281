"""The service as it is: python -m tests.broker.plain broker.toml."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from qloom.broker.config import read_config
from qloom.broker.serve import serve

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    serve(read_config(Path(sys.argv[1])))
