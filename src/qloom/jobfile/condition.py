"""The condition that ends a loop, read from a JSON file."""

from __future__ import annotations

import json
import operator
from typing import Any

from qloom.errors import JobError
from qloom.jobfile.model import LIMITS, Until

_COMPARE = {"at_least": operator.ge, "at_most": operator.le, "above": operator.gt, "below": operator.lt}


def read_value(until: Until, name: str, content: bytes) -> Any:
    """The value that the condition is about."""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise JobError(f"the loop's condition: {name} is not JSON: {error}") from None
    for step in until.key.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            there = f"there is: {', '.join(value)}" if isinstance(value, dict) and value else None
            raise JobError(f"the loop's condition: {name} has no {until.key}", hint=there)
    return value


def is_met(until: Until, name: str, value: Any) -> bool:
    """Whether the loop can end."""
    limit = next(limit for limit in LIMITS if limit in until.model_fields_set)
    wanted = getattr(until, limit)
    if limit == "equals":
        return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JobError(f"the loop's condition: {until.key} in {name} is {value!r}, not a number")
    return bool(_COMPARE[limit](value, wanted))
