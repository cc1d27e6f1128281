"""Whether a loop goes on: its limit, and a job file's condition on a value in a JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from qloom.errors import InputError
from qloom.jobfile.condition import is_met, read_value
from qloom.jobfile.model import Until


def proceeds(
    folder: Path, iteration: int, max_iterations: int, file: str | None, key: str, limits: dict[str, Any]
) -> bool:
    """Whether there is another iteration after this one."""
    met = False
    if file is not None:
        try:
            until = Until(file=file, key=key, **limits)
            content = (folder / file).read_bytes()
        except ValidationError:
            raise InputError(
                "a condition has a key and exactly one limit", hint="--key score --at-least 0.8"
            ) from None
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from None
        met = is_met(until, file, read_value(until, file, content))
    return iteration < max_iterations and not met
