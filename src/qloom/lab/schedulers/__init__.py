"""Scheduling policies by name, or as `module:Class`. A policy is given a state and says what starts and resizes."""

from __future__ import annotations

import importlib
import sys

from qloom.errors import InputError, PolicyError
from qloom.lab.schedulers.conservative import Conservative
from qloom.lab.schedulers.easy import Easy
from qloom.lab.schedulers.fcfs import Fcfs
from qloom.lab.schedulers.guard import GuardedPolicy, described
from qloom.lab.schedulers.policy import Policy
from qloom.lab.schedulers.replan import Replan

POLICIES: dict[str, type[Policy]] = {"fcfs": Fcfs, "easy": Easy, "conservative": Conservative, "replan": Replan}


def make_policy(text: str, **options: float) -> Policy:
    """The policy that `text` names, with its options; a user's own one is guarded."""
    if text in POLICIES:
        return POLICIES[text](**options)
    module_name, colon, class_name = text.partition(":")
    if not colon:
        raise InputError(f"no policy is called {text!r}", hint=f"{', '.join(POLICIES)}, or module:Class of your own")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of this directory, as for `python -m`
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ModuleNotFoundError as error:
        raise InputError(f"policy {text}: {error}", hint="is it on PYTHONPATH?") from None
    except Exception as error:
        raise PolicyError(f"policy {text} cannot be imported: {described(error)}") from None
    if not callable(getattr(found, "decide", None)) or not isinstance(found, type):
        raise InputError(f"policy {text}: {module_name} has no class {class_name} with a method decide")
    return GuardedPolicy(text, found, options)
