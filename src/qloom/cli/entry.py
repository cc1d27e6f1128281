"""What the script `qloom` starts: Ctrl-C is one line even while the commands are being imported."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line."""
    try:
        from qloom.cli.main import run as run_command
    except KeyboardInterrupt:
        print("qloom: interrupted", file=sys.stderr)
        sys.exit(130)
    run_command()
