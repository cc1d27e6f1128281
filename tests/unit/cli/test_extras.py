"""Without the extra `broker`, whatever needs it says so in one line."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.cli.typed import write

COMMANDS = (["broker", "serve"], ["qpu", "list"], ["run", "prog.py", "--broker", "unix:/x"], ["testbed", "up"])
TYPED = f"""
import sys

sys.modules.update(dict.fromkeys(("fastapi", "httpx", "prometheus_client", "uvicorn")))  # as if not installed
from qloom.cli.main import run

for words in {COMMANDS}:
    sys.argv = ["qloom", *words]
    try:
        run()
    except SystemExit as ended:
        print(ended.code)
"""


def test_the_extra_is_named(qloom_home):
    write("prog.py", "async def program(job):\n    return 1\n")
    done = subprocess.run([sys.executable, "-c", TYPED], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["2"] * len(COMMANDS), done.stderr
    line = 'qloom: fastapi, httpx, prometheus_client, uvicorn: not installed (pip install "qloom[broker]"'
    assert [said.startswith(line) for said in done.stderr.splitlines()] == [True] * len(COMMANDS)
    assert not (qloom_home / "runs").exists()
