"""The real service with a device that never closes and has a child, and two seconds to stop.

python -m tests.security.stubborn broker.toml
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

from qloom.broker.config import read_config
from qloom.broker.serve import serve
from tests.broker.service import DirectoryDevice


class StubbornDevice(DirectoryDevice):
    """Its child is noted in `child.pid` beside its tasks."""

    def __init__(self, values) -> None:
        super().__init__(values)
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        self.directory.with_name("child.pid").write_text(str(self.child.pid))

    async def close(self) -> None:
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    serve(read_config(Path(sys.argv[1])), StubbornDevice, stop_s=2.0)
