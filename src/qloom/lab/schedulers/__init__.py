"""Scheduling policies by name, or as `module:Class`. A policy is given a state and says what starts and resizes."""

from __future__ import annotations

import importlib
import sys

from qloom.errors import InputError, PolicyError
from qloom.lab.schedulers.guard import GuardedPolicy, described
from qloom.lab.schedulers.policy import Policy
from qloom.plugins import Registry


def _is_policy(found: object) -> bool:
    return isinstance(found, type) and callable(getattr(found, "decide", None))


POLICIES: Registry[type[Policy]] = Registry(
    "qloom.policies",
    "policy",
    {
        "fcfs": "qloom.lab.schedulers.policy:Fcfs",
        "easy": "qloom.lab.schedulers.easy:Easy",
        "conservative": "qloom.lab.schedulers.reservations:Conservative",
        "replan": "qloom.lab.schedulers.reservations:Replan",
    },
    expected="a class with a method decide",
    check=_is_policy,
)


def make_policy(text: str, **options: float) -> Policy:
    """The policy that `text` names, with its options; one that is not qloom's is guarded."""
    module_name, colon, class_name = text.partition(":")
    if not colon:
        policy = POLICIES.choose(text, also=", or module:Class of your own")
        return policy(**options) if text in POLICIES.built_in else GuardedPolicy(text, policy, options)
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of this directory, as for `python -m`
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ModuleNotFoundError as error:
        raise InputError(f"policy {text}: {error}", hint="is it on PYTHONPATH?") from None
    except Exception as error:
        raise PolicyError(f"policy {text} cannot be imported: {described(error)}") from None
    if not isinstance(found, type) or not _is_policy(found):
        raise InputError(f"policy {text}: {module_name} has no class {class_name} with a method decide")
    return GuardedPolicy(text, found, options)
