"""Job files: TOML that does for executables in any language what a Python program does."""

from __future__ import annotations

from qloom.jobfile.program import program_from
from qloom.jobfile.schema import jobfile_schema

__all__ = ["jobfile_schema", "program_from"]
