"""Job files: TOML that does for executables in any language what a Python program does."""

from __future__ import annotations

from qloom.jobfile.model import jobfile_schema
from qloom.jobfile.program import program_from

__all__ = ["jobfile_schema", "program_from"]
