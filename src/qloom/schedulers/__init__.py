"""Scheduling policies by name, or as `module:Class`. A policy is pure: a state in, starts and resizes out."""

from __future__ import annotations

import importlib
import sys

from qloom.errors import InputError
from qloom.schedulers.conservative import Conservative
from qloom.schedulers.easy import Easy
from qloom.schedulers.fcfs import Fcfs
from qloom.schedulers.policy import Policy

POLICIES: dict[str, type[Policy]] = {"fcfs": Fcfs, "easy": Easy, "conservative": Conservative}


def make_policy(text: str, **options: float) -> Policy:
    """The policy that `text` names, with its options."""
    if text in POLICIES:
        return POLICIES[text](**options)
    module_name, colon, class_name = text.partition(":")
    if not colon:
        raise InputError(f"no policy is called {text!r}", hint=f"{', '.join(POLICIES)}, or module:Class of your own")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of this directory, as for `python -m`
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ImportError as error:
        raise InputError(f"policy {text}: {error}", hint="is it on PYTHONPATH?") from None
    if not callable(getattr(found, "decide", None)) or not isinstance(found, type):
        raise InputError(f"policy {text}: {module_name} has no class {class_name} with a method decide")
    policy: Policy = found(**options)
    return policy
