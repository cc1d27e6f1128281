"""Just enough YAML to write workflows that people read: block style, and JSON's rules for what is quoted."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/$][A-Za-z0-9_/$().:-]*(?<!:)")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf", ".nan", ".inf")


def to_yaml(value: Any) -> str:
    """The text of a document."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(f"{_scalar(str(key))}:", item)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _item(item)]
    return [_scalar(value)]


def _entry(head: str, item: Any) -> list[str]:
    if isinstance(item, dict | list | tuple) and item:
        if isinstance(item, list | tuple) and all(isinstance(part, str | int | float) for part in item):
            flow = f"{head} [{', '.join(_scalar(part, in_flow=True) for part in item)}]"
            if len(flow) < 100:
                return [flow]
        return [head, *(f"  {line}" for line in _lines(item))]
    return [f"{head} {_scalar(item)}"]


def _item(item: Any) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: Any, in_flow: bool = False) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return json.dumps(value) if in_flow and "(" in value else value
    return json.dumps(value)
